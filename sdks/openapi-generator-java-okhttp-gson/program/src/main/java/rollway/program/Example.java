package rollway.program;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import rollway.client.ApiClient;
import rollway.client.ApiException;
import rollway.client.api.RecordsApi;
import rollway.client.api.TopicsApi;
import rollway.client.model.Encoding;
import rollway.client.model.FetchedRecord;
import rollway.client.model.LogStartProblem;
import rollway.client.model.Problem;
import rollway.client.model.ProducedRecord;
import rollway.client.model.RecordList;
import rollway.client.model.TopicSpecification;

/** Create a topic, append a record as JSON, read it back, and handle an error, with okhttp-gson. */
public final class Example {
    private Example() {}

    public static void main(String[] arguments) throws ApiException, IOException {
        ApiClient client = new ApiClient();
        client.setBasePath(System.getenv("ROLLWAY_URL"));
        client.setBearerToken(System.getenv("ROLLWAY_API_KEY"));
        client.addDefaultHeader("Client-Id", "example");
        new TopicsApi(client).ensureTopic("example", new TopicSpecification().partitions(1)).execute();

        RecordsApi records = new RecordsApi(client);
        ProducedRecord reading = new ProducedRecord().key("kitchen").value(Map.of("celsius", 21.5));
        RecordList sent = new RecordList().records(List.of(reading));
        records.produceRecords("example", 0, sent).encoding(Encoding.JSON).execute();

        try {
            var found = records.fetchRecords("example", 0).offset("earliest").encoding(Encoding.JSON).execute();
            for (FetchedRecord record : found.getRecords()) {
                System.out.println(record.getOffset() + " " + record.getKey() + " " + record.getValue());
            }
        } catch (ApiException error) {
            if (error.getCode() == 410) {
                long start = LogStartProblem.fromJson(error.getResponseBody()).getLogStartOffset();
                System.out.println("those records are deleted; the log begins at " + start);
            } else {
                Problem problem = Problem.fromJson(error.getResponseBody());
                String advice = problem.getRetryable() ? "again" : "for good";
                System.out.println(problem.getCode() + " " + problem.getDetail() + " " + advice);
            }
        }
    }
}
