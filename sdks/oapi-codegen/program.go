// All steps of sdks/steps.py with the client of oapi-codegen.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/oapi-codegen/nullable"

	"example/rollway"
)

var (
	ctx     = context.Background()
	address = os.Getenv("ROLLWAY_URL")
	prefix  = os.Getenv("ROLLWAY_PREFIX")
	client  = newClient(rollway.WithRequestEditorFn(authenticate))
)

func newClient(options ...rollway.ClientOption) *rollway.ClientWithResponses {
	client, err := rollway.NewClientWithResponses(address, options...)
	check(err == nil, "%v", err)
	return client
}

func authenticate(_ context.Context, request *http.Request) error {
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ROLLWAY_API_KEY"))
	return nil
}

// response is what an operation gives: the answer, or nil and a problem for what the status says.
type response[A any] interface {
	GetJSON200() *A
	GetBody() []byte
	StatusCode() int
}

// must returns the answer of a request that has to succeed: must(client.GetTopicWithResponse(ctx, name)).
func must[A any](response response[A], err error) *A {
	check(err == nil, "%v", err)
	check(response.GetJSON200() != nil, "%d: %.500s", response.StatusCode(), response.GetBody())
	return response.GetJSON200()
}

// to is a pointer to value, for members and parameters that may be left out.
func to[T any](value T) *T {
	return &value
}

func create(name string, partitions int32) string {
	config := map[string]string{"max.message.bytes": "50000000"}
	specification := rollway.TopicSpecification{Partitions: &partitions, Config: &config}
	answer, err := client.EnsureTopicWithResponse(ctx, prefix+name, specification)
	check(err == nil, "%v", err)
	check(answer.JSON201 != nil, "a new topic expected, not %d: %s", answer.StatusCode(), answer.Body)
	return answer.JSON201.Name
}

func toSend(records ...rollway.ProducedRecord) rollway.RecordList {
	return rollway.RecordList{Records: records}
}

func send(topic string, params rollway.ProduceRecordsParams, records ...rollway.ProducedRecord) *rollway.ProduceResult {
	return must(client.ProduceRecordsWithResponse(ctx, topic, 0, &params, toSend(records...)))
}

// fetch reads from the beginning, if options name no offset.
func fetch(topic string, options rollway.FetchRecordsParams) *rollway.FetchResult {
	if options.Offset == nil {
		options.Offset = to("earliest")
	}
	options.MaxBytes = to(int64(100_000_000))
	return must(client.FetchRecordsWithResponse(ctx, topic, 0, &options))
}

func text(value string) rollway.ProducedRecord {
	return rollway.ProducedRecord{Value: value}
}

func values(result *rollway.FetchResult) []any {
	found := []any{}
	for _, record := range result.Records {
		found = append(found, record.Value)
	}
	return found
}

func topic() {
	name := create("topic", 2)
	found := must(client.GetTopicWithResponse(ctx, name))
	check(found.Config["max.message.bytes"].Value == 50_000_000.0, "%v", found.Config)
	check(len(found.Partitions) == 2, "%v", found.Partitions)
}

func produce() {
	name := create("produce", 1)
	trace := nullable.NewNullableWithValue("trace")
	headers := []rollway.RecordHeader{
		{Name: trace, Value: nullable.NewNullableWithValue("a")},
		{Name: trace, ValueBase64: nullable.NewNullableWithValue([]byte{0x00, 0xff})},
	}
	record := rollway.ProducedRecord{
		Key:       "k",
		Value:     "v",
		Headers:   &headers,
		Timestamp: nullable.NewNullableWithValue(int64(1_700_000_000_000)),
	}
	tombstone := rollway.ProducedRecord{ValueBase64: nullable.NewNullNullable[[]byte]()}
	options := rollway.ProduceRecordsParams{Acks: to(rollway.AcksAll), Durability: to(rollway.DurabilityFsynced)}
	done := send(name, options, record, tombstone)
	check(done.BaseOffset == 0 && done.LastOffset == 1 && done.RecordCount == 2, "%v", done)

	records := fetch(name, rollway.FetchRecordsParams{}).Records
	check(len(records) == 2, "%v", records)
	first, second := records[0], records[1]
	check(first.Key == "k" && first.Value == "v", "%v", first)
	check(first.Timestamp == 1_700_000_000_000 && first.Offset == 0, "%v", first)
	check(reflect.DeepEqual(first.Headers, headers), "%v", first)
	check(second.Key == nil && !second.KeyBase64.IsSpecified(), "%v", second)
	check(second.Value == nil && !second.ValueBase64.IsSpecified(), "%v", second)
}

// content is a row of the table: the bytes of a key or value, nil for none.
type content struct {
	Name   string
	Base64 *string
	Text   *string
	JSON   bool
}

// members are what says the content: the value of key or value, or of key_base64 or value_base64.
//
// A nil any is left out of a request, so null is JSON here. JSON goes as it is: numbers keep all their digits.
func (content content) members(encoding rollway.Encoding) (value any, asBytes nullable.Nullable[[]byte]) {
	switch {
	case content.Base64 == nil && encoding == rollway.EncodingBase64:
		asBytes.SetNull()
	case content.Base64 == nil:
		value = json.RawMessage("null")
	case encoding == rollway.EncodingUtf8 && content.Text != nil:
		value = *content.Text
	case encoding == rollway.EncodingJson && content.JSON:
		value = json.RawMessage(*content.Text)
	default:
		read, err := base64.StdEncoding.DecodeString(*content.Base64)
		check(err == nil, "%v", err)
		asBytes.Set(read)
	}
	return value, asBytes
}

// isShown tells whether an answer has the same members. This client reads numbers as float64.
func isShown(value any, asBytes nullable.Nullable[[]byte], expected any, expectedBytes nullable.Nullable[[]byte]) bool {
	if raw, is := expected.(json.RawMessage); is {
		check(json.Unmarshal(raw, &expected) == nil, "%.500s", raw)
	}
	// A member that was left out is an empty map, or none.
	isSame := len(asBytes) == len(expectedBytes) && (len(asBytes) == 0 || reflect.DeepEqual(asBytes, expectedBytes))
	return reflect.DeepEqual(value, expected) && isSame
}

func contents(encoding rollway.Encoding) {
	name := create("contents."+string(encoding), 1)
	for _, content := range table() {
		value, asBytes := content.members(encoding)
		record := rollway.ProducedRecord{Key: value, KeyBase64: asBytes, Value: value, ValueBase64: asBytes}
		offset := fmt.Sprint(send(name, rollway.ProduceRecordsParams{Encoding: &encoding}, record).BaseOffset)
		options := rollway.FetchRecordsParams{Offset: &offset, MaxRecords: to(int32(1)), Encoding: &encoding}
		records := fetch(name, options).Records
		check(len(records) == 1, "%s: %d records", content.Name, len(records))
		found := records[0]
		check(isShown(found.Key, found.KeyBase64, value, asBytes), "%s, key: %.500v", content.Name, found.Key)
		check(isShown(found.Value, found.ValueBase64, value, asBytes), "%s, value: %.500v", content.Name, found.Value)
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
		sent = append(sent, rollway.ProducedRecord{Key: fmt.Sprint(number), Value: fmt.Sprintf("value %d", number)})
	}
	send(name, rollway.ProduceRecordsParams{}, sent...)
	options := rollway.FetchRecordBatchesParams{Offset: to("earliest")}
	fetched, err := client.FetchRecordBatchesWithResponse(ctx, name, 0, &options)
	check(err == nil && fetched.StatusCode() == 200, "%v %v", err, fetched)
	batches := fetched.Body
	check(len(batches) > 61 && batches[16] == 2, "%v", batches)
	done := must(client.ProduceRecordBatchesWithBodyWithResponse(
		ctx, copied, 0, &rollway.ProduceRecordBatchesParams{}, "application/octet-stream", bytes.NewReader(batches),
	))
	check(done.RecordCount == 3, "%v", done)
	for _, topic := range []string{name, copied} {
		found := values(fetch(topic, rollway.FetchRecordsParams{}))
		check(slices.Equal(found, []any{"value 0", "value 1", "value 2"}), "%v", found)
	}
}

// each reads lines of JSON as they come.
//
// Methods without WithResponse give the HTTP response as it is. Those with it cannot read lines: they take an answer
// that is no application/json and has json in the name of its media type for a problem.
func each[T any](response *http.Response, err error) []T {
	check(err == nil && response.StatusCode == 200, "%v %v", err, response)
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	found := []T{}
	for decoder.More() {
		var next T
		err := decoder.Decode(&next)
		check(err == nil, "%v", err)
		found = append(found, next)
	}
	return found
}

func lines() {
	name := create("lines", 1)
	sent := strings.NewReader(`{"key": "a", "value": "1"}` + "\n" + `{"value": null}` + "\n")
	options := rollway.ProduceRecordLinesParams{}
	count := int64(0)
	for _, result := range each[rollway.ProduceResult](
		client.ProduceRecordLinesWithBody(ctx, name, 0, &options, "application/x-ndjson", sent),
	) {
		count += result.RecordCount
	}
	check(count == 2, "%d records", count)
	records := each[rollway.FetchedRecord](
		client.FetchRecordLines(ctx, name, 0, &rollway.FetchRecordLinesParams{Offset: to("earliest")}),
	)
	check(len(records) == 2, "%v", records)
	check(records[0].Key == "a" && records[0].Value == "1", "%v", records[0])
	check(records[1].Key == nil && !records[1].KeyBase64.IsSpecified(), "%v", records[1])
	check(records[1].Value == nil && !records[1].ValueBase64.IsSpecified(), "%v", records[1])
}

func longPoll() {
	name := create("poll", 1)
	type outcome struct {
		response *rollway.FetchRecordsResponse
		err      error
	}
	found := make(chan outcome, 1)
	go func() {
		options := rollway.FetchRecordsParams{Offset: to("0"), WaitMs: to(int32(30_000))}
		response, err := client.FetchRecordsWithResponse(ctx, name, 0, &options)
		found <- outcome{response, err}
	}()
	send(name, rollway.ProduceRecordsParams{}, text("news"))
	reader := <-found
	result := must(reader.response, reader.err)
	check(slices.Equal(values(result), []any{"news"}), "%v", result)
}

func offsetByTime() {
	name := create("time", 2)
	records := []rollway.ProducedRecord{}
	for _, timestamp := range []int64{1_000, 2_000, 3_000} {
		record := text(fmt.Sprint(timestamp))
		record.Timestamp.Set(timestamp)
		records = append(records, record)
	}
	send(name, rollway.ProduceRecordsParams{}, records...)
	answer := must(client.GetOffsetWithResponse(ctx, name, 0, &rollway.GetOffsetParams{Timestamp: "1500"}))
	check(answer.Offset.MustGet() == 1 && answer.Timestamp.MustGet() == 2_000, "%v", answer)
	queries := []rollway.OffsetQuery{}
	for _, place := range []string{"earliest", "latest", "1500"} {
		queries = append(queries, rollway.OffsetQuery{Topic: name, Partition: 0, Timestamp: place})
	}
	results := must(client.FindOffsetsWithResponse(ctx, rollway.OffsetQueries{Queries: queries})).Results
	check(len(results) == 3, "%v", results)
	for number, offset := range []int64{0, 3, 1} {
		result := results[number]
		check(result.Error == nil && result.Offset.MustGet() == offset, "%v", result)
	}
}

func idempotencyKey() {
	name := create("idempotency", 1)
	options := rollway.ProduceRecordsParams{IdempotencyKey: to(prefix + "request")}
	for _, isReplayed := range []bool{false, true} {
		answer, err := client.ProduceRecordsWithResponse(ctx, name, 0, &options, toSend(text("once")))
		check(must(answer, err).BaseOffset == 0, "%v", answer)
		replayed := answer.Headers200.IdempotentReplayed
		check((replayed != nil) == isReplayed && (replayed == nil || *replayed), "%v", answer.HTTPResponse.Header)
	}
	found := values(fetch(name, rollway.FetchRecordsParams{}))
	check(slices.Equal(found, []any{"once"}), "%v", found)
}

func committed(topic string) []any {
	return values(fetch(topic, rollway.FetchRecordsParams{Isolation: to(rollway.IsolationReadCommitted)}))
}

func transaction() {
	name, identity := create("transaction", 1), prefix+"writer"
	producer := must(client.InitialiseProducerWithResponse(
		ctx,
		&rollway.InitialiseProducerParams{},
		rollway.ProducerRequest{TransactionalId: nullable.NewNullableWithValue(identity)},
	))
	options := rollway.ProduceRecordsParams{
		ProducerId:      &producer.ProducerId,
		ProducerEpoch:   &producer.ProducerEpoch,
		BaseSequence:    to(int32(0)),
		TransactionalId: &identity,
	}
	send(name, options, text("all or nothing"))
	check(len(committed(name)) == 0, "%v", committed(name))
	end := rollway.EndTransaction{ProducerId: producer.ProducerId, ProducerEpoch: producer.ProducerEpoch}
	must(client.CommitTransactionWithResponse(ctx, identity, &rollway.CommitTransactionParams{}, end))
	check(slices.Equal(committed(name), []any{"all or nothing"}), "%v", committed(name))
}

func job() {
	name := create("job", 1)
	begun, err := client.BeginJobWithResponse(ctx, &rollway.BeginJobParams{}, rollway.JobSpecification{
		ApplicationId: prefix + "loader",
		Version:       1,
		Mode:          to(rollway.JobModeIdempotent),
		Topics:        &[]string{name},
	})
	check(err == nil && begun.JSON201 != nil, "%v %v", err, begun)
	id := begun.JSON201.JobId
	enlisted, err := client.EnlistAttemptWithResponse(ctx, id, rollway.AttemptSpecification{Task: 0})
	check(err == nil && enlisted.JSON201 != nil, "%v %v", err, enlisted)
	attempt := enlisted.JSON201
	options := rollway.ProduceRecordsParams{
		ProducerId:    &attempt.ProducerId,
		ProducerEpoch: &attempt.ProducerEpoch,
		BaseSequence:  to(int32(0)),
	}
	send(name, options, text("loaded"))
	winner := rollway.JobWinner{ProducerId: attempt.ProducerId, Rows: nullable.NewNullableWithValue(int64(1))}
	commit := rollway.JobCommit{Winners: []rollway.JobWinner{winner}}
	done := must(client.CommitJobWithResponse(ctx, id, &rollway.CommitJobParams{}, commit))
	check(done.WinnerCount == 1 && done.Rows == 1, "%v", done)
	check(slices.Equal(committed(name), []any{"loaded"}), "%v", committed(name))
}

func paging() {
	names := []string{}
	for number := range 5 {
		names = append(names, create(fmt.Sprintf("page.%d", number), 1))
	}
	found := []string{}
	options := rollway.ListTopicsParams{Prefix: to(prefix + "page."), Limit: to(int32(2))}
	for {
		page := must(client.ListTopicsWithResponse(ctx, &options))
		for _, topic := range page.Data {
			found = append(found, topic.Name)
		}
		if !page.HasMore {
			break
		}
		options.StartAfter = to(page.NextCursor.MustGet())
	}
	check(slices.Equal(found, names), "%v", found)
}

func fetchAt(topic string, offset string) *rollway.FetchRecordsResponse {
	answer, err := client.FetchRecordsWithResponse(ctx, topic, 0, &rollway.FetchRecordsParams{Offset: &offset})
	check(err == nil, "%v", err)
	return answer
}

func notFound() {
	answer := fetchAt(prefix+"nothing", "0")
	problem := answer.ApplicationproblemJSONDefault
	check(answer.StatusCode() == 404 && problem != nil, "%s", answer.Body)
	check(problem.Code == "unknown_topic_or_partition", "%v", problem)
}

func gone() {
	name := create("gone", 1)
	send(name, rollway.ProduceRecordsParams{}, text("0"), text("1"), text("2"))
	start := rollway.DeleteRecords{Offset: nullable.NewNullableWithValue(int64(2))}
	must(client.DeleteRecordsWithResponse(ctx, name, 0, start))
	answer := fetchAt(name, "0")
	problem := answer.ApplicationproblemJSON410
	check(answer.StatusCode() == 410 && problem != nil, "%s", answer.Body)
	check(problem.LogStartOffset == 2, "%v", problem)
}

func beyondTheEnd() {
	answer := fetchAt(create("end", 1), "7")
	problem := answer.ApplicationproblemJSON416
	check(answer.StatusCode() == 416 && problem != nil, "%s", answer.Body)
	check(problem.LogEndOffset == 0, "%v", problem)
}

func precondition() {
	options := rollway.ProduceRecordsParams{ExpectedOffset: to(int64(3))}
	name := create("precondition", 1)
	answer, err := client.ProduceRecordsWithResponse(ctx, name, 0, &options, toSend(text("late")))
	check(err == nil, "%v", err)
	problem := answer.ApplicationproblemJSON412
	check(answer.StatusCode() == 412 && problem != nil, "%s", answer.Body)
	check(problem.LogEndOffset == 0, "%v", problem)
}

func authentication() {
	answer, err := newClient().ListTopicsWithResponse(ctx, &rollway.ListTopicsParams{})
	check(err == nil, "%v", err)
	problem := answer.ApplicationproblemJSONDefault
	check(answer.StatusCode() == 401 && problem != nil, "%s", answer.Body)
	check(!problem.Retryable, "%v", problem)
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
	run("contents utf8", func() { contents(rollway.EncodingUtf8) })
	run("contents base64", func() { contents(rollway.EncodingBase64) })
	run("contents json", func() { contents(rollway.EncodingJson) })
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
