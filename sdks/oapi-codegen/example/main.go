// Create a topic, append a record as JSON, read it back, and handle an error, with oapi-codegen.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"example/rollway"
)

func main() {
	ctx, earliest, asJSON := context.Background(), "earliest", rollway.EncodingJson
	client, err := rollway.NewClientWithResponses(os.Getenv("ROLLWAY_URL"), rollway.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+os.Getenv("ROLLWAY_API_KEY"))
			request.Header.Set("Client-Id", "example")
			return nil
		}))
	if err != nil {
		log.Fatal(err)
	}

	partitions := int32(1)
	specification := rollway.TopicSpecification{Partitions: &partitions}
	if _, err := client.EnsureTopicWithResponse(ctx, "example", specification); err != nil {
		log.Fatal(err)
	}

	reading := rollway.ProducedRecord{Key: "kitchen", Value: map[string]float64{"celsius": 21.5}}
	options := rollway.ProduceRecordsParams{Encoding: &asJSON}
	records := rollway.RecordList{Records: []rollway.ProducedRecord{reading}}
	if _, err := client.ProduceRecordsWithResponse(ctx, "example", 0, &options, records); err != nil {
		log.Fatal(err)
	}

	answer, err := client.FetchRecordsWithResponse(ctx, "example", 0,
		&rollway.FetchRecordsParams{Offset: &earliest, Encoding: &asJSON})
	switch {
	case err != nil:
		log.Fatal(err)
	case answer.JSON200 != nil:
		for _, record := range answer.JSON200.Records {
			fmt.Println(record.Offset, record.Key, record.Value)
		}
	case answer.ApplicationproblemJSON410 != nil:
		fmt.Println("those records are deleted; the log begins at", answer.ApplicationproblemJSON410.LogStartOffset)
	default:
		fmt.Println(answer.StatusCode(), string(answer.Body))
	}
}
