// Print the values of a partition, one request after another, until there are no more: go run read_lines.go orders 0
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type record struct {
	Offset      int64   `json:"offset"`
	Value       *string `json:"value"`        // text; null and absent are both nil
	ValueBase64 []byte  `json:"value_base64"` // bytes that are no text
}

func main() {
	topic, partition, offset := os.Args[1], os.Args[2], "earliest"
	for count := 1; count > 0; {
		path := fmt.Sprintf("/v1/topics/%s/partitions/%s/record-lines?offset=%s", topic, partition, offset)
		answer, err := http.Get(os.Getenv("ROLLWAY_URL") + path)
		if err != nil {
			log.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			problem, _ := io.ReadAll(answer.Body)
			log.Fatal(string(problem))
		}
		count = 0
		// A decoder takes one line after another, however long they are.
		for lines := json.NewDecoder(answer.Body); ; count++ {
			var found record
			if err := lines.Decode(&found); err == io.EOF {
				break
			} else if err != nil {
				log.Fatal(err)
			}
			switch {
			case found.Value != nil:
				fmt.Println(found.Offset, *found.Value)
			case found.ValueBase64 != nil:
				fmt.Println(found.Offset, found.ValueBase64)
			default:
				fmt.Println(found.Offset, nil)
			}
		}
		answer.Body.Close()
		offset = answer.Header.Get("Next-Offset")
	}
}
