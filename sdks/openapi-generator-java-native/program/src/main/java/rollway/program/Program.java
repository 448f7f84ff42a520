package rollway.program;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonSerializer;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.module.SimpleModule;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.math.BigDecimal;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.FutureTask;
import java.util.stream.Stream;
import rollway.client.ApiClient;
import rollway.client.ApiException;
import rollway.client.ApiResponse;
import rollway.client.api.LoadJobsApi;
import rollway.client.api.OffsetsApi;
import rollway.client.api.RecordsApi;
import rollway.client.api.RecordsApi.APIFetchRecordBatchesRequest;
import rollway.client.api.RecordsApi.APIFetchRecordLinesRequest;
import rollway.client.api.RecordsApi.APIFetchRecordsRequest;
import rollway.client.api.RecordsApi.APIProduceRecordBatchesRequest;
import rollway.client.api.RecordsApi.APIProduceRecordLinesRequest;
import rollway.client.api.RecordsApi.APIProduceRecordsRequest;
import rollway.client.api.RetentionApi;
import rollway.client.api.TopicsApi;
import rollway.client.api.TransactionsApi;
import rollway.client.model.Acks;
import rollway.client.model.AttemptSpecification;
import rollway.client.model.DeleteRecords;
import rollway.client.model.Durability;
import rollway.client.model.Encoding;
import rollway.client.model.EndTransaction;
import rollway.client.model.ExpectedOffsetProblem;
import rollway.client.model.FetchResult;
import rollway.client.model.FetchedRecord;
import rollway.client.model.Isolation;
import rollway.client.model.JobCommit;
import rollway.client.model.JobMode;
import rollway.client.model.JobSpecification;
import rollway.client.model.JobWinner;
import rollway.client.model.LogEndProblem;
import rollway.client.model.LogStartProblem;
import rollway.client.model.OffsetOutcome;
import rollway.client.model.OffsetQueries;
import rollway.client.model.OffsetQuery;
import rollway.client.model.PartitionProduceOutcome;
import rollway.client.model.Problem;
import rollway.client.model.ProduceResult;
import rollway.client.model.ProducedRecord;
import rollway.client.model.ProducerRequest;
import rollway.client.model.RecordHeader;
import rollway.client.model.RecordList;
import rollway.client.model.TopicDescription;
import rollway.client.model.TopicPage;
import rollway.client.model.TopicSpecification;

/** All steps of sdks/steps.py with the client of openapi-generator's java, library native. */
public final class Program {
    private static final String PREFIX = System.getenv("ROLLWAY_PREFIX");
    private static final Map<String, String> LARGE = Map.of("max.message.bytes", "50000000");

    private static final ObjectMapper MAPPER = mapper();

    private final ApiClient client = client(System.getenv("ROLLWAY_API_KEY"));
    private final LoadJobsApi jobs = new LoadJobsApi(client);
    private final OffsetsApi offsets = new OffsetsApi(client);
    private final RecordsApi records = new RecordsApi(client);
    private final RetentionApi retention = new RetentionApi(client);
    private final TopicsApi topics = new TopicsApi(client);
    private final TransactionsApi transactions = new TransactionsApi(client);
    private final List<Content> contents;

    private Program() throws IOException {
        contents = List.of(MAPPER.readValue(new File(System.getenv("ROLLWAY_CONTENTS")), Content[].class));
    }

    public static void main(String[] arguments) throws IOException {
        new Program().run();
    }

    private static ApiClient client(String key) {
        ApiClient client = new ApiClient(HttpClient.newBuilder(), MAPPER, System.getenv("ROLLWAY_URL"));
        if (key != null) {
            client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
        }
        return client;
    }

    /** The client's own mapper, mended: it sends the names of files, leaves null out of values, and rounds numbers. */
    private static ObjectMapper mapper() {
        return ApiClient.createDefaultObjectMapper()
            .setDefaultPropertyInclusion(
                JsonInclude.Value.construct(JsonInclude.Include.NON_NULL, JsonInclude.Include.ALWAYS))
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .registerModule(new SimpleModule().addSerializer(File.class, new ContentOfFiles()))
            .addMixIn(ProducedRecord.class, WithNulls.class);
    }

    @JsonInclude
    private interface WithNulls {}

    /** Sends the bytes of a file, where Jackson would send its name as JSON. */
    private static final class ContentOfFiles extends JsonSerializer<File> {
        @Override
        public void serialize(File file, JsonGenerator out, SerializerProvider provider) throws IOException {
            Files.copy(file.toPath(), (OutputStream) out.getOutputTarget());
        }
    }

    /** A row of the table of contents. */
    private record Content(String name, String base64, String text, boolean json) {}

    /** Text or a JSON value, or bytes in base64: the two members that say a key or a value. */
    private record Members(Object shown, String base64) {
        Members {
            shown = plain(shown);
        }

        static Members of(Content content, Encoding encoding) throws IOException {
            if (encoding == Encoding.UTF8 && content.text() != null) {
                return new Members(content.text(), null);
            }
            if (encoding == Encoding.JSON && content.json()) {
                return new Members(MAPPER.readValue(content.text(), Object.class), null);
            }
            return new Members(null, content.base64());
        }

        /** The same JSON with numbers that are equal if they are the same number: 1.10 is 1.1. */
        private static Object plain(Object json) {
            if (json instanceof BigDecimal number) {
                return number.stripTrailingZeros();
            }
            if (json instanceof List<?> list) {
                return list.stream().map(Members::plain).toList();
            }
            if (json instanceof Map<?, ?> members) {
                Map<Object, Object> found = new LinkedHashMap<>();
                members.forEach((name, value) -> found.put(name, plain(value)));
                return found;
            }
            return json;
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private interface Request {
        Object send() throws ApiException;
    }

    private void run() {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("topic", this::topic);
        steps.put("produce", this::produce);
        steps.put("contents utf8", () -> contents(Encoding.UTF8));
        steps.put("contents base64", () -> contents(Encoding.BASE64));
        steps.put("contents json", () -> contents(Encoding.JSON));
        steps.put("raw batches", this::rawBatches);
        steps.put("lines", this::lines);
        steps.put("long poll", this::longPoll);
        steps.put("offset by time", this::offsetByTime);
        steps.put("idempotency key", this::idempotencyKey);
        steps.put("transaction", this::transaction);
        steps.put("job", this::job);
        steps.put("paging", this::paging);
        steps.put("not found", this::notFound);
        steps.put("gone", this::gone);
        steps.put("beyond the end", this::beyondTheEnd);
        steps.put("precondition", this::precondition);
        steps.put("authentication", this::authentication);
        steps.forEach((name, step) -> {
            try {
                step.run();
                System.out.println("ok " + name);
            } catch (Exception error) {
                System.out.println("failed " + name + ": " + brief(error));
            }
        });
    }

    private void topic() throws ApiException {
        String name = create("topic", 2);
        TopicDescription found = topics.getTopic(name);
        Object bytes = found.getConfig().get("max.message.bytes").getValue();
        check(bytes instanceof Number number && number.longValue() == 50_000_000, found);
        check(found.getPartitions().size() == 2, found);
    }

    private void produce() throws ApiException {
        String name = create("produce", 1);
        List<RecordHeader> headers = List.of(
            new RecordHeader().name("trace").value("a"),
            new RecordHeader().name("trace").valueBase64("AP8="));
        ProducedRecord record = text("v").key("k").headers(headers).timestamp(1_700_000_000_000L);
        ProduceResult done = records.produceRecords(to(name, record, new ProducedRecord().valueBase64(null))
            .acks(Acks.ALL)
            .durability(Durability.FSYNCED)
            .build());
        check(done.getBaseOffset() == 0 && done.getLastOffset() == 1 && done.getRecordCount() == 2, done);
        List<FetchedRecord> found = records.fetchRecords(from(name).build()).getRecords();
        check(found.size() == 2, found);
        FetchedRecord first = found.get(0);
        check("k".equals(first.getKey()) && "v".equals(first.getValue()), first);
        check(first.getTimestamp() == 1_700_000_000_000L && first.getOffset() == 0, first);
        List<List<String>> names = first.getHeaders().stream()
            .map(each -> Arrays.asList(each.getName(), each.getValue(), each.getValueBase64()))
            .toList();
        check(names.equals(List.of(Arrays.asList("trace", "a", null), Arrays.asList("trace", null, "AP8="))), first);
        FetchedRecord second = found.get(1);
        check(second.getKey() == null && second.getValue() == null && second.getValueBase64() == null, second);
    }

    private void contents(Encoding encoding) throws ApiException, IOException {
        String name = create("contents." + encoding, 1);
        for (Content content : contents) {
            Members sent = Members.of(content, encoding);
            ProducedRecord record = new ProducedRecord()
                .key(sent.shown())
                .keyBase64(sent.base64())
                .value(sent.shown())
                .valueBase64(sent.base64());
            long offset = records.produceRecords(to(name, record).encoding(encoding).build()).getBaseOffset();
            List<FetchedRecord> found = records.fetchRecords(from(name)
                .offset(String.valueOf(offset))
                .maxRecords(1)
                .encoding(encoding)
                .build()).getRecords();
            check(found.size() == 1, content.name());
            FetchedRecord got = found.get(0);
            check(new Members(got.getKey(), got.getKeyBase64()).equals(sent), content.name());
            check(new Members(got.getValue(), got.getValueBase64()).equals(sent), content.name());
        }
    }

    private void rawBatches() throws ApiException, IOException {
        String name = create("raw", 1);
        String copy = create("raw.copy", 1);
        send(name, text("value 0").key("0"), text("value 1").key("1"), text("value 2").key("2"));
        Path batches = records.fetchRecordBatches(
            APIFetchRecordBatchesRequest.newBuilder().topic(name).partition(0).offset("earliest").build()).toPath();
        byte[] bytes = Files.readAllBytes(batches);
        check(bytes.length > 61 && bytes[16] == 2, bytes.length);
        ProduceResult done = records.produceRecordBatches(
            APIProduceRecordBatchesRequest.newBuilder().topic(copy).partition(0).body(batches.toFile()).build());
        check(done.getRecordCount() == 3, done);
        for (String each : List.of(name, copy)) {
            List<Object> found = values(records.fetchRecords(from(each).build()));
            check(found.equals(List.of("value 0", "value 1", "value 2")), found);
        }
    }

    private void lines() throws ApiException, IOException {
        String name = create("lines", 1);
        Path sent = Files.createTempFile("lines-", "");
        sent.toFile().deleteOnExit();
        ProducedRecord tombstone = new ProducedRecord().value(null);
        Files.write(sent, List.of(MAPPER.writeValueAsString(text("1").key("a")), MAPPER.writeValueAsString(tombstone)));
        ApiResponse<File> answer = records.produceRecordLinesWithHttpInfo(
            APIProduceRecordLinesRequest.newBuilder().topic(name).partition(0).body(sent.toFile()).build());
        check(answer.getStatusCode() == 200, answer.getStatusCode());
        long count = 0;
        for (String line : Files.readAllLines(answer.getData().toPath())) {
            PartitionProduceOutcome outcome = MAPPER.readValue(line, PartitionProduceOutcome.class);
            check(outcome.getError() == null, outcome);
            count += outcome.getRecordCount();
        }
        check(count == 2, count);
        Path got = records.fetchRecordLines(
            APIFetchRecordLinesRequest.newBuilder().topic(name).partition(0).offset("earliest").build()).toPath();
        List<List<Object>> found = new ArrayList<>();
        for (String line : Files.readAllLines(got)) {
            FetchedRecord record = MAPPER.readValue(line, FetchedRecord.class);
            found.add(Arrays.asList(record.getKey(), record.getValue()));
        }
        check(found.equals(List.of(List.of("a", "1"), Arrays.asList(null, null))), found);
    }

    private void longPoll() throws Exception {
        String name = create("poll", 1);
        FutureTask<FetchResult> found = new FutureTask<>(
            () -> records.fetchRecords(from(name).offset("0").waitMs(30_000).build()));
        new Thread(found).start();
        send(name, text("news"));
        check(values(found.get()).equals(List.of("news")), found.get());
    }

    private void offsetByTime() throws ApiException {
        String name = create("time", 2);
        send(name, text("1000").timestamp(1_000L), text("2000").timestamp(2_000L), text("3000").timestamp(3_000L));
        var answer = offsets.getOffset(name, 0, "1500", null, null);
        check(answer.getOffset() == 1 && answer.getTimestamp() == 2_000, answer);
        List<OffsetQuery> queries = Stream.of("earliest", "latest", "1500")
            .map(time -> new OffsetQuery().topic(name).partition(0).timestamp(time))
            .toList();
        var results = offsets.findOffsets(new OffsetQueries().queries(queries)).getResults();
        List<Long> found = results.stream().map(OffsetOutcome::getOffset).toList();
        check(found.equals(List.of(0L, 3L, 1L)), results);
        check(results.stream().allMatch(each -> each.getError() == null), results);
    }

    private void idempotencyKey() throws ApiException {
        String name = create("idempotency", 1);
        for (String replayed : Arrays.asList(null, "true")) {
            ApiResponse<ProduceResult> answer = records.produceRecordsWithHttpInfo(to(name, text("once"))
                .idempotencyKey(PREFIX + "request")
                .build());
            check(answer.getData().getBaseOffset() == 0, answer.getData());
            List<String> header = answer.getHeaders().get("Idempotent-Replayed");
            check(Objects.equals(header, replayed == null ? null : List.of(replayed)), answer.getHeaders());
        }
        check(values(records.fetchRecords(from(name).build())).equals(List.of("once")), name);
    }

    private void transaction() throws ApiException {
        String name = create("transaction", 1);
        String identity = PREFIX + "writer";
        var producer = transactions.initialiseProducer(new ProducerRequest().transactionalId(identity), null);
        records.produceRecords(to(name, text("all or nothing"))
            .producerId(producer.getProducerId())
            .producerEpoch(producer.getProducerEpoch())
            .baseSequence(0)
            .transactionalId(identity)
            .build());
        check(committed(name).isEmpty(), name);
        var end = new EndTransaction()
            .producerId(producer.getProducerId())
            .producerEpoch(producer.getProducerEpoch());
        transactions.commitTransaction(identity, end, null);
        check(committed(name).equals(List.of("all or nothing")), name);
    }

    private void job() throws ApiException {
        String name = create("job", 1);
        JobSpecification specification = new JobSpecification()
            .applicationId(PREFIX + "loader")
            .version(1L)
            .mode(JobMode.IDEMPOTENT)
            .topics(List.of(name));
        String id = jobs.beginJob(specification, null).getJobId();
        var attempt = jobs.enlistAttempt(id, new AttemptSpecification().task(0L));
        records.produceRecords(to(name, text("loaded"))
            .producerId(attempt.getProducerId())
            .producerEpoch(attempt.getProducerEpoch())
            .baseSequence(0)
            .build());
        JobWinner winner = new JobWinner().producerId(attempt.getProducerId()).rows(1L);
        var done = jobs.commitJob(id, new JobCommit().winners(List.of(winner)), null);
        check(done.getWinnerCount() == 1 && done.getRows() == 1, done);
        check(committed(name).equals(List.of("loaded")), name);
    }

    private void paging() throws ApiException {
        List<String> names = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            names.add(create("page." + number, 1));
        }
        List<String> found = new ArrayList<>();
        TopicPage page;
        String startAfter = null;
        do {
            page = topics.listTopics(PREFIX + "page.", startAfter, 2);
            page.getData().forEach(topic -> found.add(topic.getName()));
            startAfter = page.getNextCursor();
        } while (page.getHasMore());
        check(found.equals(names), found);
    }

    private void notFound() throws IOException {
        Problem found = refusal(404, Problem.class, () -> records.fetchRecords(from(PREFIX + "nothing").build()));
        check("unknown_topic_or_partition".equals(found.getCode()), found);
    }

    private void gone() throws ApiException, IOException {
        String name = create("gone", 1);
        send(name, text("0"), text("1"), text("2"));
        retention.deleteRecords(name, 0, new DeleteRecords().offset(2L));
        var request = from(name).offset("0").build();
        LogStartProblem found = refusal(410, LogStartProblem.class, () -> records.fetchRecords(request));
        check(found.getLogStartOffset() == 2, found);
    }

    private void beyondTheEnd() throws ApiException, IOException {
        String name = create("end", 1);
        var request = from(name).offset("7").build();
        LogEndProblem found = refusal(416, LogEndProblem.class, () -> records.fetchRecords(request));
        check(found.getLogEndOffset() == 0, found);
    }

    private void precondition() throws ApiException, IOException {
        String name = create("precondition", 1);
        var request = to(name, text("late")).expectedOffset(3L).build();
        ExpectedOffsetProblem found = refusal(412, ExpectedOffsetProblem.class, () -> records.produceRecords(request));
        check(found.getLogEndOffset() == 0, found);
    }

    private void authentication() throws IOException {
        TopicsApi anonymous = new TopicsApi(client(null));
        Problem found = refusal(401, Problem.class, () -> anonymous.listTopics(null, null, null));
        check(!found.getRetryable(), found);
    }

    private String create(String name, int partitions) throws ApiException {
        TopicSpecification specification = new TopicSpecification().partitions(partitions).config(LARGE);
        return topics.ensureTopic(PREFIX + name, specification).getName();
    }

    private static ProducedRecord text(String value) {
        return new ProducedRecord().value(value);
    }

    private static APIProduceRecordsRequest.Builder to(String topic, ProducedRecord... sent) {
        return APIProduceRecordsRequest.newBuilder()
            .topic(topic)
            .partition(0)
            .recordList(new RecordList().records(List.of(sent)));
    }

    private void send(String topic, ProducedRecord... sent) throws ApiException {
        records.produceRecords(to(topic, sent).build());
    }

    private static APIFetchRecordsRequest.Builder from(String topic) {
        return APIFetchRecordsRequest.newBuilder().topic(topic).partition(0).offset("earliest").maxBytes(100_000_000L);
    }

    private static List<Object> values(FetchResult result) {
        return result.getRecords().stream().map(FetchedRecord::getValue).toList();
    }

    private List<Object> committed(String topic) throws ApiException {
        return values(records.fetchRecords(from(topic).isolation(Isolation.READ_COMMITTED).build()));
    }

    /** The problem that the request was answered with. */
    private static <P> P refusal(int status, Class<P> type, Request request) throws IOException {
        try {
            throw new IllegalStateException(status + " expected, not " + brief(request.send()));
        } catch (ApiException error) {
            check(error.getCode() == status, error);
            return MAPPER.readValue(error.getResponseBody(), type);
        }
    }

    private static void check(boolean isRight, Object what) {
        if (!isRight) {
            throw new IllegalStateException(brief(what));
        }
    }

    private static String brief(Object what) {
        String text = String.valueOf(what).replace('\n', ' ');
        return text.substring(0, Math.min(text.length(), 500));
    }
}
