// All steps of sdks/steps.py with the client that openapi-generator makes for Go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"example/rollway"
)

var (
	address       = os.Getenv("ROLLWAY_URL")
	prefix        = os.Getenv("ROLLWAY_PREFIX")
	client        = newClient(address)
	authenticated = context.WithValue(context.Background(), rollway.ContextAccessToken, os.Getenv("ROLLWAY_API_KEY"))
)

func newClient(url string) *rollway.APIClient {
	configuration := rollway.NewConfiguration()
	configuration.Servers = rollway.ServerConfigurations{{URL: url}}
	return rollway.NewAPIClient(configuration)
}

// must returns the answer of a request that has to succeed: must(client.TopicsAPI.GetTopic(ctx, name).Execute()).
func must[A any](answer A, response *http.Response, err error) A {
	var failure *rollway.GenericOpenAPIError
	if errors.As(err, &failure) {
		fail("%v: %.500s", err, failure.Body())
	}
	check(err == nil && response.StatusCode < 300, "%v", err)
	return answer
}

// refused returns the problem of a request that has to be refused, and the status.
func refused[P, A any](_ A, response *http.Response, err error) (P, int) {
	var failure *rollway.GenericOpenAPIError
	check(errors.As(err, &failure), "an answer that tells a problem expected, not %v", err)
	problem, is := failure.Model().(P)
	check(is, "%T expected, not %T: %v", problem, failure.Model(), err)
	return problem, response.StatusCode
}

func create(name string, partitions int32) string {
	topic := rollway.NewTopicSpecification()
	topic.SetPartitions(partitions)
	topic.SetConfig(map[string]string{"max.message.bytes": "50000000"})
	request := client.TopicsAPI.EnsureTopic(authenticated, prefix+name).TopicSpecification(*topic)
	return must(request.Execute()).Name
}

// toSend is a request that appends records; its other methods set parameters.
func toSend(topic string, records ...rollway.ProducedRecord) rollway.ApiProduceRecordsRequest {
	return client.RecordsAPI.ProduceRecords(authenticated, topic, 0).RecordList(*rollway.NewRecordList(records))
}

func send(topic string, records ...rollway.ProducedRecord) *rollway.ProduceResult {
	return must(toSend(topic, records...).Execute())
}

func toFetch(topic string, offset string) rollway.ApiFetchRecordsRequest {
	return client.RecordsAPI.FetchRecords(authenticated, topic, 0).Offset(offset).MaxBytes(100_000_000)
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
	found := must(client.TopicsAPI.GetTopic(authenticated, name).Execute())
	check(found.Config["max.message.bytes"].Value == 50_000_000.0, "%v", found.Config)
	check(len(found.Partitions) == 2, "%v", found.Partitions)
}

func produce() {
	name := create("produce", 1)
	var asText, asBytes rollway.RecordHeader
	asText.SetName("trace")
	asText.SetValue("a")
	asBytes.SetName("trace")
	asBytes.SetValueBase64("AP8=")
	record := rollway.ProducedRecord{Key: "k", Value: "v", Headers: []rollway.RecordHeader{asText, asBytes}}
	record.SetTimestamp(1_700_000_000_000)
	var tombstone rollway.ProducedRecord
	tombstone.SetValueBase64Nil()
	request := toSend(name, record, tombstone).Acks(rollway.ACKS_ALL).Durability(rollway.DURABILITY_FSYNCED)
	done := must(request.Execute())
	check(done.BaseOffset == 0 && done.LastOffset == 1 && done.RecordCount == 2, "%v", done)

	records := must(toFetch(name, "earliest").Execute()).Records
	check(len(records) == 2, "%v", records)
	first, second := records[0], records[1]
	check(first.Key == "k" && first.Value == "v", "%v", first)
	check(first.Timestamp == 1_700_000_000_000 && first.Offset == 0, "%v", first)
	check(len(first.Headers) == 2, "%v", first)
	for number, header := range first.Headers {
		sent := record.Headers[number]
		check(header.GetName() == "trace", "%v", header)
		check(reflect.DeepEqual(header.Value, sent.Value), "%v", header)
		check(reflect.DeepEqual(header.ValueBase64, sent.ValueBase64), "%v", header)
	}
	check(second.Key == nil && !second.KeyBase64.IsSet(), "%v", second)
	check(second.Value == nil && !second.ValueBase64.IsSet(), "%v", second)
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
func (content content) members(encoding rollway.Encoding) (value any, inBase64 rollway.NullableString) {
	switch {
	case encoding == rollway.ENCODING_BASE64:
		inBase64.Set(content.Base64)
	case content.Base64 == nil:
		value = json.RawMessage("null")
	case encoding == rollway.ENCODING_UTF8 && content.Text != nil:
		value = *content.Text
	case encoding == rollway.ENCODING_JSON && content.JSON:
		value = json.RawMessage(*content.Text)
	default:
		inBase64.Set(content.Base64)
	}
	return value, inBase64
}

// isShown tells whether an answer has the same members. This client reads numbers as float64.
func isShown(value any, inBase64 rollway.NullableString, expected any, expectedBase64 rollway.NullableString) bool {
	if raw, is := expected.(json.RawMessage); is {
		check(json.Unmarshal(raw, &expected) == nil, "%.500s", raw)
	}
	return reflect.DeepEqual(value, expected) && reflect.DeepEqual(inBase64, expectedBase64)
}

func contents(encoding rollway.Encoding) {
	name := create("contents."+string(encoding), 1)
	for _, content := range table() {
		value, inBase64 := content.members(encoding)
		record := rollway.ProducedRecord{Key: value, KeyBase64: inBase64, Value: value, ValueBase64: inBase64}
		offset := must(toSend(name, record).Encoding(encoding).Execute()).BaseOffset
		request := toFetch(name, fmt.Sprint(offset)).MaxRecords(1).Encoding(encoding)
		records := must(request.Execute()).Records
		check(len(records) == 1, "%s: %d records", content.Name, len(records))
		found := records[0]
		check(isShown(found.Key, found.KeyBase64, value, inBase64), "%s, key: %.500v", content.Name, found.Key)
		check(isShown(found.Value, found.ValueBase64, value, inBase64), "%s, value: %.500v", content.Name, found.Value)
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

// temporary is an open file with that text: this client sends and gives bytes as files.
func temporary(text string) *os.File {
	file, err := os.CreateTemp("", "rollway-")
	check(err == nil, "%v", err)
	_, err = file.WriteString(text)
	check(err == nil, "%v", err)
	return rewound(file)
}

func rewound(file *os.File) *os.File {
	_, err := file.Seek(0, io.SeekStart)
	check(err == nil, "%v", err)
	return file
}

func remove(file *os.File) {
	check(errors.Join(file.Close(), os.Remove(file.Name())) == nil, "%s stays", file.Name())
}

func readAll(file *os.File) []byte {
	read, err := io.ReadAll(file)
	check(err == nil, "%v", err)
	return read
}

func rawBatches() {
	name, copied := create("raw", 1), create("raw.copy", 1)
	sent := []rollway.ProducedRecord{}
	for number := range 3 {
		sent = append(sent, rollway.ProducedRecord{Key: fmt.Sprint(number), Value: fmt.Sprintf("value %d", number)})
	}
	send(name, sent...)
	batches := must(client.RecordsAPI.FetchRecordBatches(authenticated, name, 0).Offset("earliest").Execute())
	defer remove(batches)
	read := readAll(batches)
	check(len(read) > 61 && read[16] == 2, "%v", read)
	request := client.RecordsAPI.ProduceRecordBatches(authenticated, copied, 0).Body(rewound(batches))
	done := must(request.Execute())
	check(done.RecordCount == 3, "%v", done)
	for _, topic := range []string{name, copied} {
		found := values(must(toFetch(topic, "earliest").Execute()))
		check(slices.Equal(found, []any{"value 0", "value 1", "value 2"}), "%v", found)
	}
}

// each reads lines of JSON.
func each[T any](lines []byte) []T {
	decoder := json.NewDecoder(strings.NewReader(string(lines)))
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
	file := temporary(`{"key": "a", "value": "1"}` + "\n" + `{"value": null}` + "\n")
	defer remove(file)
	results := must(client.RecordsAPI.ProduceRecordLines(authenticated, name, 0).Body(file).Execute())
	defer remove(results)
	count := int64(0)
	for _, result := range each[rollway.ProduceResult](readAll(results)) {
		count += result.RecordCount
	}
	check(count == 2, "%d records", count)
	got := must(client.RecordsAPI.FetchRecordLines(authenticated, name, 0).Offset("earliest").Execute())
	defer remove(got)
	records := each[rollway.FetchedRecord](readAll(got))
	check(len(records) == 2, "%v", records)
	check(records[0].Key == "a" && records[0].Value == "1", "%v", records[0])
	check(records[1].Key == nil && !records[1].KeyBase64.IsSet(), "%v", records[1])
	check(records[1].Value == nil && !records[1].ValueBase64.IsSet(), "%v", records[1])
}

func longPoll() {
	name := create("poll", 1)
	type outcome struct {
		result   *rollway.FetchResult
		response *http.Response
		err      error
	}
	found := make(chan outcome, 1)
	go func() {
		result, response, err := toFetch(name, "0").WaitMs(30_000).Execute()
		found <- outcome{result, response, err}
	}()
	send(name, text("news"))
	reader := <-found
	result := must(reader.result, reader.response, reader.err)
	check(slices.Equal(values(result), []any{"news"}), "%v", result)
}

func offsetByTime() {
	name := create("time", 2)
	records := []rollway.ProducedRecord{}
	for _, timestamp := range []int64{1_000, 2_000, 3_000} {
		record := text(fmt.Sprint(timestamp))
		record.SetTimestamp(timestamp)
		records = append(records, record)
	}
	send(name, records...)
	answer := must(client.OffsetsAPI.GetOffset(authenticated, name, 0).Timestamp("1500").Execute())
	check(is(answer.Offset.Get(), 1) && is(answer.Timestamp.Get(), 2_000), "%v", answer)
	queries := []rollway.OffsetQuery{}
	for _, place := range []string{"earliest", "latest", "1500"} {
		queries = append(queries, *rollway.NewOffsetQuery(name, 0, place))
	}
	request := client.OffsetsAPI.FindOffsets(authenticated).OffsetQueries(*rollway.NewOffsetQueries(queries))
	results := must(request.Execute()).Results
	check(len(results) == 3, "%v", results)
	for number, offset := range []int64{0, 3, 1} {
		result := results[number]
		check(result.Error == nil && is(result.Offset.Get(), offset), "%v", result)
	}
}

// is tells whether an optional number is there, and that one.
func is(found *int64, expected int64) bool {
	return found != nil && *found == expected
}

func idempotencyKey() {
	name := create("idempotency", 1)
	for _, replayed := range []string{"", "true"} {
		answer, response, err := toSend(name, text("once")).IdempotencyKey(prefix + "request").Execute()
		check(must(answer, response, err).BaseOffset == 0, "%v", answer)
		check(response.Header.Get("Idempotent-Replayed") == replayed, "%v", response.Header)
	}
	found := values(must(toFetch(name, "earliest").Execute()))
	check(slices.Equal(found, []any{"once"}), "%v", found)
}

func committed(topic string) []any {
	return values(must(toFetch(topic, "earliest").Isolation(rollway.ISOLATION_READ_COMMITTED).Execute()))
}

func transaction() {
	name, identity := create("transaction", 1), prefix+"writer"
	wanted := rollway.NewProducerRequest()
	wanted.SetTransactionalId(identity)
	producer := must(client.TransactionsAPI.InitialiseProducer(authenticated).ProducerRequest(*wanted).Execute())
	request := toSend(name, text("all or nothing")).TransactionalId(identity)
	request = request.ProducerId(producer.ProducerId).ProducerEpoch(producer.ProducerEpoch).BaseSequence(0)
	must(request.Execute())
	check(len(committed(name)) == 0, "%v", committed(name))
	end := *rollway.NewEndTransaction(producer.ProducerId, producer.ProducerEpoch)
	must(client.TransactionsAPI.CommitTransaction(authenticated, identity).EndTransaction(end).Execute())
	check(slices.Equal(committed(name), []any{"all or nothing"}), "%v", committed(name))
}

func job() {
	name := create("job", 1)
	specification := rollway.NewJobSpecification(prefix+"loader", 1)
	specification.SetMode(rollway.JOBMODE_IDEMPOTENT)
	specification.SetTopics([]string{name})
	begun := must(client.LoadJobsAPI.BeginJob(authenticated).JobSpecification(*specification).Execute())
	task := *rollway.NewAttemptSpecification(0)
	attempt := must(client.LoadJobsAPI.EnlistAttempt(authenticated, begun.JobId).AttemptSpecification(task).Execute())
	request := toSend(name, text("loaded")).ProducerId(attempt.ProducerId)
	must(request.ProducerEpoch(attempt.ProducerEpoch).BaseSequence(0).Execute())
	winner := rollway.NewJobWinner(attempt.ProducerId)
	winner.SetRows(1)
	commit := *rollway.NewJobCommit([]rollway.JobWinner{*winner})
	done := must(client.LoadJobsAPI.CommitJob(authenticated, begun.JobId).JobCommit(commit).Execute())
	check(done.WinnerCount == 1 && done.Rows == 1, "%v", done)
	check(slices.Equal(committed(name), []any{"loaded"}), "%v", committed(name))
}

func paging() {
	names := []string{}
	for number := range 5 {
		names = append(names, create(fmt.Sprintf("page.%d", number), 1))
	}
	found := []string{}
	request := client.TopicsAPI.ListTopics(authenticated).Prefix(prefix + "page.").Limit(2)
	for {
		page := must(request.Execute())
		for _, topic := range page.Data {
			found = append(found, topic.Name)
		}
		if !page.HasMore {
			break
		}
		request = request.StartAfter(*page.NextCursor.Get())
	}
	check(slices.Equal(found, names), "%v", found)
}

func notFound() {
	problem, status := refused[rollway.Problem](toFetch(prefix+"nothing", "0").Execute())
	check(status == 404 && problem.Code == "unknown_topic_or_partition", "%d %v", status, problem)
}

func gone() {
	name := create("gone", 1)
	send(name, text("0"), text("1"), text("2"))
	start := rollway.NewDeleteRecords()
	start.SetOffset(2)
	must(client.RetentionAPI.DeleteRecords(authenticated, name, 0).DeleteRecords(*start).Execute())
	problem, status := refused[rollway.LogStartProblem](toFetch(name, "0").Execute())
	check(status == 410 && problem.LogStartOffset == 2, "%d %v", status, problem)
}

func beyondTheEnd() {
	problem, status := refused[rollway.LogEndProblem](toFetch(create("end", 1), "7").Execute())
	check(status == 416 && problem.LogEndOffset == 0, "%d %v", status, problem)
}

func precondition() {
	request := toSend(create("precondition", 1), text("late")).ExpectedOffset(3)
	problem, status := refused[rollway.ExpectedOffsetProblem](request.Execute())
	check(status == 412 && problem.LogEndOffset == 0, "%d %v", status, problem)
}

func authentication() {
	request := newClient(address).TopicsAPI.ListTopics(context.Background())
	problem, status := refused[rollway.Problem](request.Execute())
	check(status == 401 && !problem.Retryable, "%d %v", status, problem)
}

func check(isRight bool, format string, arguments ...any) {
	if !isRight {
		fail(format, arguments...)
	}
}

// fail ends a step.
func fail(format string, arguments ...any) {
	panic(fmt.Errorf(format, arguments...))
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
	run("contents utf8", func() { contents(rollway.ENCODING_UTF8) })
	run("contents base64", func() { contents(rollway.ENCODING_BASE64) })
	run("contents json", func() { contents(rollway.ENCODING_JSON) })
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
