// Print the values of a partition, one request after another, until there are no more. With Jackson on the class path:
// java -cp "jackson/*" ReadLines.java orders 0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

class ReadLines {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        var json = new ObjectMapper();
        var path = "/v1/topics/%s/partitions/%s/record-lines?offset=".formatted(arguments[0], arguments[1]);
        var offset = "earliest";
        for (var count = 1; count > 0; ) {
            var request = HttpRequest.newBuilder(URI.create(System.getenv("ROLLWAY_URL") + path + offset)).build();
            var answer = client.send(request, BodyHandlers.ofInputStream());
            count = 0;
            try (var lines = new BufferedReader(new InputStreamReader(answer.body(), StandardCharsets.UTF_8))) {
                if (answer.statusCode() != 200) {
                    throw new IOException(lines.readLine());
                }
                for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                    JsonNode record = json.readTree(line);
                    var value = record.has("value")
                            ? record.get("value").asText()
                            : Arrays.toString(record.get("value_base64").binaryValue());
                    System.out.println(record.get("offset") + " " + value);
                    count += 1;
                }
            }
            offset = answer.headers().firstValue("Next-Offset").orElseThrow();
        }
    }
}
