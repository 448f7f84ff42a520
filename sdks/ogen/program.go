// All steps of sdks/steps.py with the client of ogen.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"example/rollway"
)

var (
	ctx    = context.Background()
	prefix = os.Getenv("ROLLWAY_PREFIX")
	client = newClient(key(os.Getenv("ROLLWAY_API_KEY")))
)

// key is what requests are made with; an empty one is not sent.
type key string

func (key key) Bearer(context.Context, rollway.OperationName) (rollway.Bearer, error) {
	if key == "" {
		return rollway.Bearer{}, ogenerrors.ErrSkipClientSecurity
	}
	return rollway.Bearer{Token: string(key)}, nil
}

func newClient(key key) *rollway.Client {
	client, err := rollway.NewClient(os.Getenv("ROLLWAY_URL"), key)
	check(err == nil, "%v", err)
	return client
}

// must returns the answer of an operation that has one type of answer: must(client.GetTopic(ctx, params)).
func must[A any](answer A, err error) A {
	check(err == nil, "%v", err)
	return answer
}

// as returns the answer of an operation that has several types of answer, one for each status.
func as[A any](answer any, err error) A {
	check(err == nil, "%v", err)
	expected, is := answer.(A)
	check(is, "%T expected, not %T: %v", expected, answer, answer)
	return expected
}

// refused returns the problem that all operations have in common, and the status.
func refused(_ any, err error) (rollway.Problem, int) {
	var failure *rollway.ProblemStatusCodeWithHeaders
	check(errors.As(err, &failure), "a problem expected, not %v", err)
	return failure.Response, failure.StatusCode
}

func create(name string, partitions int32) string {
	config := rollway.TopicSpecificationConfig{"max.message.bytes": "50000000"}
	specification := rollway.TopicSpecification{
		Partitions: rollway.NewOptInt32(partitions),
		Config:     rollway.NewOptTopicSpecificationConfig(config),
	}
	params := rollway.EnsureTopicParams{Topic: prefix + name}
	return as[*rollway.EnsureTopicCreated](client.EnsureTopic(ctx, &specification, params)).Response.Name
}

// toSend are the parameters of a request that appends records.
func toSend(topic string) rollway.ProduceRecordsParams {
	return rollway.ProduceRecordsParams{Topic: topic, Partition: 0}
}

func send(params rollway.ProduceRecordsParams, records ...rollway.ProducedRecord) rollway.ProduceResult {
	answer, err := client.ProduceRecords(ctx, &rollway.RecordList{Records: records}, params)
	return as[*rollway.ProduceResultHeaders](answer, err).Response
}

// toFetch are the parameters of a request that reads records.
func toFetch(topic string, offset string) rollway.FetchRecordsParams {
	return rollway.FetchRecordsParams{
		Topic:    topic,
		Offset:   rollway.NewOptString(offset),
		MaxBytes: rollway.NewOptInt64(100_000_000),
	}
}

func fetch(params rollway.FetchRecordsParams) rollway.FetchResult {
	return as[*rollway.FetchResultHeaders](client.FetchRecords(ctx, params)).Response
}

// encoded is text as JSON: keys and values are JSON in this client.
func encoded(text string) jx.Raw {
	written, err := json.Marshal(text)
	check(err == nil, "%v", err)
	return written
}

func text(value string) rollway.ProducedRecord {
	return rollway.ProducedRecord{Value: encoded(value)}
}

// decoded is a JSON value whose numbers keep all their digits; it is null for a member that is not there, too.
func decoded(raw jx.Raw) any {
	if raw == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	check(err == nil, "%v", err)
	return value
}

func values(result rollway.FetchResult) []any {
	found := []any{}
	for _, record := range result.Records {
		found = append(found, decoded(record.Value))
	}
	return found
}

// isNull tells whether the value is null; a member that is not there is nil.
func isNull(raw jx.Raw) bool {
	return string(raw) == "null"
}

func topic() {
	name := create("topic", 2)
	found := must(client.GetTopic(ctx, rollway.GetTopicParams{Topic: name})).Response
	check(isSame(decoded(found.Config["max.message.bytes"].Value), json.Number("50000000")), "%v", found.Config)
	check(len(found.Partitions) == 2, "%v", found.Partitions)
}

func produce() {
	name := create("produce", 1)
	trace := rollway.NewOptNilString("trace")
	headers := []rollway.RecordHeader{
		{Name: trace, Value: rollway.NewOptNilString("a")},
		{Name: trace, ValueBase64: rollway.NewOptNilString("AP8=")},
	}
	record := rollway.ProducedRecord{
		Key:       encoded("k"),
		Value:     encoded("v"),
		Headers:   headers,
		Timestamp: rollway.NewOptNilInt64(1_700_000_000_000),
	}
	var tombstone rollway.ProducedRecord
	tombstone.ValueBase64.SetToNull()
	params := toSend(name)
	params.Acks = rollway.NewOptAcks(rollway.AcksAll)
	params.Durability = rollway.NewOptDurability(rollway.DurabilityFsynced)
	done := send(params, record, tombstone)
	check(done.BaseOffset == 0 && done.LastOffset == 1 && done.RecordCount == 2, "%v", done)

	records := fetch(toFetch(name, "earliest")).Records
	check(len(records) == 2, "%v", records)
	first, second := records[0], records[1]
	check(decoded(first.Key) == "k" && decoded(first.Value) == "v", "%v", first)
	check(first.Timestamp == 1_700_000_000_000 && first.Offset == 0, "%v", first)
	check(slices.Equal(first.Headers, headers), "%v", first)
	check(isNull(second.Key) && !second.KeyBase64.IsSet(), "%v", second)
	check(isNull(second.Value) && !second.ValueBase64.IsSet(), "%v", second)
}

// content is a row of the table: the bytes of a key or value, nil for none.
type content struct {
	Name   string
	Base64 *string
	Text   *string
	JSON   bool
}

// members are what says the content: the value of key or value, or of key_base64 or value_base64.
func (content content) members(encoding rollway.Encoding) (value jx.Raw, inBase64 rollway.OptNilString) {
	switch {
	case content.Base64 == nil && encoding == rollway.EncodingBase64:
		inBase64.SetToNull()
	case content.Base64 == nil:
		value = jx.Raw("null")
	case encoding == rollway.EncodingUTF8 && content.Text != nil:
		value = encoded(*content.Text)
	case encoding == rollway.EncodingJSON && content.JSON:
		value = jx.Raw(*content.Text)
	default:
		inBase64.SetTo(*content.Base64)
	}
	return value, inBase64
}

// isSame compares JSON values, and numbers exactly.
func isSame(one any, other any) bool {
	switch one := one.(type) {
	case json.Number:
		other, is := other.(json.Number)
		return is && exact(one).Cmp(exact(other)) == 0
	case []any:
		other, is := other.([]any)
		return is && slices.EqualFunc(one, other, isSame)
	case map[string]any:
		other, is := other.(map[string]any)
		return is && maps.EqualFunc(one, other, isSame)
	default:
		return one == other
	}
}

func exact(number json.Number) *big.Rat {
	found, is := new(big.Rat).SetString(number.String())
	check(is, "%s is no number", number)
	return found
}

// isShown tells whether an answer has the same members.
func isShown(value jx.Raw, inBase64 rollway.OptNilString, expected jx.Raw, expectedBase64 rollway.OptNilString) bool {
	isThere := (value == nil) == (expected == nil)
	return isThere && inBase64 == expectedBase64 && isSame(decoded(value), decoded(expected))
}

func contents(encoding rollway.Encoding) {
	name := create("contents."+string(encoding), 1)
	for _, content := range table() {
		value, inBase64 := content.members(encoding)
		record := rollway.ProducedRecord{Key: value, KeyBase64: inBase64, Value: value, ValueBase64: inBase64}
		sending := toSend(name)
		sending.Encoding = rollway.NewOptEncoding(encoding)
		fetching := toFetch(name, fmt.Sprint(send(sending, record).BaseOffset))
		fetching.Encoding = rollway.NewOptEncoding(encoding)
		fetching.MaxRecords = rollway.NewOptInt32(1)
		records := fetch(fetching).Records
		check(len(records) == 1, "%s: %d records", content.Name, len(records))
		found := records[0]
		check(isShown(found.Key, found.KeyBase64, value, inBase64), "%s, key: %.500s", content.Name, found.Key)
		check(isShown(found.Value, found.ValueBase64, value, inBase64), "%s, value: %.500s", content.Name, found.Value)
	}
}

func table() []content {
	read, err := os.ReadFile(os.Getenv("ROLLWAY_CONTENTS"))
	check(err == nil, "%v", err)
	var table []content
	err = json.Unmarshal(read, &table)
	check(err == nil && len(table) > 0, "%d contents: %v", len(table), err)
	return table
}

func rawBatches() {
	name, copied := create("raw", 1), create("raw.copy", 1)
	sent := []rollway.ProducedRecord{}
	for number := range 3 {
		record := text(fmt.Sprintf("value %d", number))
		record.Key = encoded(fmt.Sprint(number))
		sent = append(sent, record)
	}
	send(toSend(name), sent...)
	fetched := as[*rollway.FetchRecordBatchesOKHeaders](client.FetchRecordBatches(
		ctx, rollway.FetchRecordBatchesParams{Topic: name, Offset: rollway.NewOptString("earliest")},
	))
	batches := must(io.ReadAll(fetched.Response))
	check(len(batches) > 61 && batches[16] == 2, "%v", batches)
	done := as[*rollway.ProduceResultHeaders](client.ProduceRecordBatches(
		ctx,
		rollway.ProduceRecordBatchesReq{Data: bytes.NewReader(batches)},
		rollway.ProduceRecordBatchesParams{Topic: copied},
	)).Response
	check(done.RecordCount == 3, "%v", done)
	for _, topic := range []string{name, copied} {
		found := values(fetch(toFetch(topic, "earliest")))
		check(slices.Equal(found, []any{"value 0", "value 1", "value 2"}), "%v", found)
	}
}

// model is a type of the client, which reads its own JSON.
type model[T any] interface {
	*T
	UnmarshalJSON(data []byte) error
}

// each reads lines of JSON.
func each[T any, M model[T]](lines io.Reader) []T {
	found := []T{}
	for line := range bytes.Lines(must(io.ReadAll(lines))) {
		var next T
		err := M(&next).UnmarshalJSON(line)
		check(err == nil, "%v", err)
		found = append(found, next)
	}
	return found
}

func lines() {
	name := create("lines", 1)
	sent := strings.NewReader(`{"key": "a", "value": "1"}` + "\n" + `{"value": null}` + "\n")
	results := as[*rollway.ProduceRecordLinesOKHeaders](client.ProduceRecordLines(
		ctx, rollway.ProduceRecordLinesReq{Data: sent}, rollway.ProduceRecordLinesParams{Topic: name},
	))
	count := int64(0)
	for _, result := range each[rollway.ProduceResult](results.Response) {
		count += result.RecordCount
	}
	check(count == 2, "%d records", count)
	got := as[*rollway.FetchRecordLinesOKHeaders](client.FetchRecordLines(
		ctx, rollway.FetchRecordLinesParams{Topic: name, Offset: rollway.NewOptString("earliest")},
	))
	records := each[rollway.FetchedRecord](got.Response)
	check(len(records) == 2, "%v", records)
	check(decoded(records[0].Key) == "a" && decoded(records[0].Value) == "1", "%v", records[0])
	check(isNull(records[1].Key) && isNull(records[1].Value), "%v", records[1])
}

func longPoll() {
	name := create("poll", 1)
	type outcome struct {
		answer rollway.FetchRecordsRes
		err    error
	}
	found := make(chan outcome, 1)
	go func() {
		params := toFetch(name, "0")
		params.WaitMs = rollway.NewOptInt32(30_000)
		answer, err := client.FetchRecords(ctx, params)
		found <- outcome{answer, err}
	}()
	send(toSend(name), text("news"))
	reader := <-found
	result := as[*rollway.FetchResultHeaders](reader.answer, reader.err).Response
	check(slices.Equal(values(result), []any{"news"}), "%v", result)
}

func offsetByTime() {
	name := create("time", 2)
	records := []rollway.ProducedRecord{}
	for _, timestamp := range []int64{1_000, 2_000, 3_000} {
		record := text(fmt.Sprint(timestamp))
		record.Timestamp.SetTo(timestamp)
		records = append(records, record)
	}
	send(toSend(name), records...)
	answer := must(client.GetOffset(ctx, rollway.GetOffsetParams{Topic: name, Timestamp: "1500"})).Response
	check(answer.Offset == rollway.NewNilInt64(1) && answer.Timestamp == rollway.NewNilInt64(2_000), "%v", answer)
	queries := []rollway.OffsetQuery{}
	for _, place := range []string{"earliest", "latest", "1500"} {
		queries = append(queries, rollway.OffsetQuery{Topic: name, Partition: 0, Timestamp: place})
	}
	found := as[*rollway.FindOffsetsOK](client.FindOffsets(ctx, &rollway.OffsetQueries{Queries: queries}))
	results := found.Response.Results
	check(len(results) == 3, "%v", results)
	for number, offset := range []int64{0, 3, 1} {
		result := results[number]
		check(!result.Error.IsSet() && result.Offset == rollway.NewOptNilInt64(offset), "%v", result)
	}
}

func idempotencyKey() {
	name := create("idempotency", 1)
	params := toSend(name)
	params.IdempotencyKey = rollway.NewOptString(prefix + "request")
	body := rollway.RecordList{Records: []rollway.ProducedRecord{text("once")}}
	for _, replayed := range []rollway.OptBool{{}, rollway.NewOptBool(true)} {
		answer := as[*rollway.ProduceResultHeaders](client.ProduceRecords(ctx, &body, params))
		check(answer.Response.BaseOffset == 0 && answer.IdempotentReplayed == replayed, "%v", answer)
	}
	found := values(fetch(toFetch(name, "earliest")))
	check(slices.Equal(found, []any{"once"}), "%v", found)
}

func committed(topic string) []any {
	params := toFetch(topic, "earliest")
	params.Isolation = rollway.NewOptIsolation(rollway.IsolationReadCommitted)
	return values(fetch(params))
}

func transaction() {
	name, identity := create("transaction", 1), prefix+"writer"
	producer := must(client.InitialiseProducer(
		ctx,
		&rollway.ProducerRequest{TransactionalID: rollway.NewOptNilString(identity)},
		rollway.InitialiseProducerParams{},
	)).Response
	params := toSend(name)
	params.ProducerID = rollway.NewOptInt64(producer.ProducerID)
	params.ProducerEpoch = rollway.NewOptInt32(producer.ProducerEpoch)
	params.BaseSequence = rollway.NewOptInt32(0)
	params.TransactionalID = rollway.NewOptString(identity)
	send(params, text("all or nothing"))
	check(len(committed(name)) == 0, "%v", committed(name))
	end := rollway.EndTransaction{ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch}
	must(client.CommitTransaction(ctx, &end, rollway.CommitTransactionParams{TransactionalID: identity}))
	check(slices.Equal(committed(name), []any{"all or nothing"}), "%v", committed(name))
}

func job() {
	name := create("job", 1)
	specification := rollway.JobSpecification{
		ApplicationID: prefix + "loader",
		Version:       1,
		Mode:          rollway.NewOptJobMode(rollway.JobModeIdempotent),
		Topics:        []string{name},
	}
	id := as[*rollway.BeginJobCreated](client.BeginJob(ctx, &specification, rollway.BeginJobParams{})).Response.JobID
	task := rollway.AttemptSpecification{Task: 0}
	attempt := must(client.EnlistAttempt(ctx, &task, rollway.EnlistAttemptParams{JobID: id})).Response
	params := toSend(name)
	params.ProducerID = rollway.NewOptInt64(attempt.ProducerID)
	params.ProducerEpoch = rollway.NewOptInt32(attempt.ProducerEpoch)
	params.BaseSequence = rollway.NewOptInt32(0)
	send(params, text("loaded"))
	winner := rollway.JobWinner{ProducerID: attempt.ProducerID, Rows: rollway.NewOptNilInt64(1)}
	commit := rollway.JobCommit{Winners: []rollway.JobWinner{winner}}
	done := must(client.CommitJob(ctx, &commit, rollway.CommitJobParams{JobID: id})).Response
	check(done.WinnerCount == 1 && done.Rows == 1, "%v", done)
	check(slices.Equal(committed(name), []any{"loaded"}), "%v", committed(name))
}

func paging() {
	names := []string{}
	for number := range 5 {
		names = append(names, create(fmt.Sprintf("page.%d", number), 1))
	}
	found := []string{}
	params := rollway.ListTopicsParams{
		Prefix: rollway.NewOptString(prefix + "page."),
		Limit:  rollway.NewOptInt32(2),
	}
	for {
		page := must(client.ListTopics(ctx, params)).Response
		for _, topic := range page.Data {
			found = append(found, topic.Name)
		}
		if !page.HasMore {
			break
		}
		cursor, is := page.NextCursor.Get()
		check(is, "%v", page)
		params.StartAfter = rollway.NewOptString(cursor)
	}
	check(slices.Equal(found, names), "%v", found)
}

func notFound() {
	problem, status := refused(client.FetchRecords(ctx, toFetch(prefix+"nothing", "0")))
	check(status == 404 && problem.Code == "unknown_topic_or_partition", "%d %v", status, problem)
}

func gone() {
	name := create("gone", 1)
	send(toSend(name), text("0"), text("1"), text("2"))
	start := rollway.DeleteRecords{Offset: rollway.NewOptNilInt64(2)}
	as[*rollway.LogStartHeaders](client.DeleteRecords(ctx, &start, rollway.DeleteRecordsParams{Topic: name}))
	problem := as[*rollway.LogStartProblemHeaders](client.FetchRecords(ctx, toFetch(name, "0"))).Response
	check(problem.Status == 410 && problem.LogStartOffset == 2, "%v", problem)
}

func beyondTheEnd() {
	name := create("end", 1)
	problem := as[*rollway.LogEndProblemHeaders](client.FetchRecords(ctx, toFetch(name, "7"))).Response
	check(problem.Status == 416 && problem.LogEndOffset == 0, "%v", problem)
}

func precondition() {
	params := toSend(create("precondition", 1))
	params.ExpectedOffset = rollway.NewOptInt64(3)
	body := rollway.RecordList{Records: []rollway.ProducedRecord{text("late")}}
	problem := as[*rollway.ExpectedOffsetProblemHeaders](client.ProduceRecords(ctx, &body, params)).Response
	check(problem.Status == 412 && problem.LogEndOffset == 0, "%v", problem)
}

func authentication() {
	problem, status := refused(newClient("").ListTopics(ctx, rollway.ListTopicsParams{}))
	check(status == 401 && !problem.Retryable, "%d %v", status, problem)
}

func check(isRight bool, format string, arguments ...any) {
	if !isRight {
		panic(fmt.Errorf(format, arguments...))
	}
}

func run(step string, do func()) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Printf("failed %s: %s\n", step, strings.ReplaceAll(fmt.Sprintf("%.500v", failure), "\n", " "))
			return
		}
		fmt.Printf("ok %s\n", step)
	}()
	do()
}

func main() {
	run("topic", topic)
	run("produce", produce)
	run("contents utf8", func() { contents(rollway.EncodingUTF8) })
	run("contents base64", func() { contents(rollway.EncodingBase64) })
	run("contents json", func() { contents(rollway.EncodingJSON) })
	run("raw batches", rawBatches)
	run("lines", lines)
	run("long poll", longPoll)
	run("offset by time", offsetByTime)
	run("idempotency key", idempotencyKey)
	run("transaction", transaction)
	run("job", job)
	run("paging", paging)
	run("not found", notFound)
	run("gone", gone)
	run("beyond the end", beyondTheEnd)
	run("precondition", precondition)
	run("authentication", authentication)
}
