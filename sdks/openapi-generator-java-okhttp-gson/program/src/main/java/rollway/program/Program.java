package rollway.program;

import com.google.gson.Gson;
import com.google.gson.ToNumberPolicy;
import com.google.gson.TypeAdapter;
import com.google.gson.TypeAdapterFactory;
import com.google.gson.reflect.TypeToken;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonWriter;
import java.io.File;
import java.io.IOException;
import java.math.BigDecimal;
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
import rollway.client.JSON;
import rollway.client.api.LoadJobsApi;
import rollway.client.api.OffsetsApi;
import rollway.client.api.RecordsApi;
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

/** All steps of sdks/steps.py with the client of openapi-generator's java, library okhttp-gson. */
public final class Program {
    private static final String PREFIX = System.getenv("ROLLWAY_PREFIX");
    private static final Map<String, String> LARGE = Map.of("max.message.bytes", "50000000");

    private final ApiClient client = client();
    private final LoadJobsApi jobs = new LoadJobsApi(client);
    private final OffsetsApi offsets = new OffsetsApi(client);
    private final RecordsApi records = new RecordsApi(client);
    private final RetentionApi retention = new RetentionApi(client);
    private final TopicsApi topics = new TopicsApi(client);
    private final TransactionsApi transactions = new TransactionsApi(client);
    private final Path folder;
    private final List<Content> contents;

    private Program(Path folder) throws IOException {
        this.folder = folder;
        client.setTempFolderPath(folder.toString());
        String table = Files.readString(Path.of(System.getenv("ROLLWAY_CONTENTS")));
        contents = List.of(JSON.getGson().fromJson(table, Content[].class));
    }

    public static void main(String[] arguments) throws IOException {
        // Numbers are read and written digit for digit, and records keep their null members.
        JSON.setGson(JSON.getGson().newBuilder()
            .setObjectToNumberStrategy(ToNumberPolicy.BIG_DECIMAL)
            .registerTypeAdapterFactory(new NullsOfRecords())
            .create());
        Path folder = Files.createTempDirectory("rollway-program");
        try {
            new Program(folder).run();
        } finally {
            try (Stream<Path> files = Files.list(folder)) {
                for (Path each : files.toList()) {
                    Files.delete(each);
                }
            }
            Files.delete(folder);
        }
        // OkHttp's threads would wait a minute for more work.
        System.exit(0);
    }

    /** Writes null members of records, which Gson leaves out: a record without a value has one that is null. */
    private static final class NullsOfRecords implements TypeAdapterFactory {
        @Override
        public <T> TypeAdapter<T> create(Gson gson, TypeToken<T> type) {
            if (type.getRawType() != RecordList.class && type.getRawType() != ProducedRecord.class) {
                return null;
            }
            TypeAdapter<T> generated = gson.getDelegateAdapter(this, type);
            return new TypeAdapter<>() {
                @Override
                public void write(JsonWriter out, T value) throws IOException {
                    boolean before = out.getSerializeNulls();
                    out.setSerializeNulls(true);
                    generated.write(out, value);
                    out.setSerializeNulls(before);
                }

                @Override
                public T read(JsonReader in) throws IOException {
                    return generated.read(in);
                }
            };
        }
    }

    /** A row of the table of contents. */
    private record Content(String name, String base64, String text, boolean json) {}

    /** Text or a JSON value, or bytes in base64: the two members that say a key or a value. */
    private record Members(Object shown, String base64) {
        Members {
            shown = plain(shown);
        }

        static Members of(Content content, Encoding encoding) {
            if (encoding == Encoding.UTF8 && content.text() != null) {
                return new Members(content.text(), null);
            }
            if (encoding == Encoding.JSON && content.json()) {
                return new Members(JSON.getGson().fromJson(content.text(), Object.class), null);
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
        TopicDescription found = topics.getTopic(name).execute();
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
        ProduceResult done = records.produceRecords(name, 0, list(record, new ProducedRecord().valueBase64(null)))
            .acks(Acks.ALL)
            .durability(Durability.FSYNCED)
            .execute();
        check(done.getBaseOffset() == 0 && done.getLastOffset() == 1 && done.getRecordCount() == 2, done);
        List<FetchedRecord> found = fetch(name).execute().getRecords();
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

    private void contents(Encoding encoding) throws ApiException {
        String name = create("contents." + encoding, 1);
        for (Content content : contents) {
            Members sent = Members.of(content, encoding);
            ProducedRecord record = new ProducedRecord()
                .key(sent.shown())
                .keyBase64(sent.base64())
                .value(sent.shown())
                .valueBase64(sent.base64());
            long offset = records.produceRecords(name, 0, list(record)).encoding(encoding).execute().getBaseOffset();
            List<FetchedRecord> found = fetch(name)
                .offset(String.valueOf(offset))
                .maxRecords(1)
                .encoding(encoding)
                .execute()
                .getRecords();
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
        Path batches = records.fetchRecordBatches(name, 0).offset("earliest").execute().toPath();
        byte[] bytes = Files.readAllBytes(batches);
        check(bytes.length > 61 && bytes[16] == 2, bytes.length);
        ProduceResult done = records.produceRecordBatches(copy, 0, batches.toFile()).execute();
        check(done.getRecordCount() == 3, done);
        for (String each : List.of(name, copy)) {
            check(values(fetch(each).execute()).equals(List.of("value 0", "value 1", "value 2")), each);
        }
    }

    private void lines() throws ApiException, IOException {
        String name = create("lines", 1);
        Path sent = folder.resolve("lines");
        Files.write(sent, List.of(JSON.serialize(text("1").key("a")), JSON.serialize(new ProducedRecord())));
        ApiResponse<File> answer = records.produceRecordLines(name, 0, sent.toFile()).executeWithHttpInfo();
        check(answer.getStatusCode() == 200, answer.getStatusCode());
        long count = 0;
        for (String line : Files.readAllLines(answer.getData().toPath())) {
            PartitionProduceOutcome outcome = PartitionProduceOutcome.fromJson(line);
            check(outcome.getError() == null, outcome);
            count += outcome.getRecordCount();
        }
        check(count == 2, count);
        Path got = records.fetchRecordLines(name, 0).offset("earliest").execute().toPath();
        List<List<Object>> found = new ArrayList<>();
        for (String line : Files.readAllLines(got)) {
            FetchedRecord record = FetchedRecord.fromJson(line);
            found.add(Arrays.asList(record.getKey(), record.getValue()));
        }
        check(found.equals(List.of(List.of("a", "1"), Arrays.asList(null, null))), found);
    }

    private void longPoll() throws Exception {
        String name = create("poll", 1);
        FutureTask<FetchResult> found = new FutureTask<>(() -> fetch(name).offset("0").waitMs(30_000).execute());
        new Thread(found).start();
        send(name, text("news"));
        check(values(found.get()).equals(List.of("news")), found.get());
    }

    private void offsetByTime() throws ApiException {
        String name = create("time", 2);
        send(name, text("1000").timestamp(1_000L), text("2000").timestamp(2_000L), text("3000").timestamp(3_000L));
        var answer = offsets.getOffset(name, 0, "1500").execute();
        check(answer.getOffset() == 1 && answer.getTimestamp() == 2_000, answer);
        List<OffsetQuery> queries = Stream.of("earliest", "latest", "1500")
            .map(time -> new OffsetQuery().topic(name).partition(0).timestamp(time))
            .toList();
        var results = offsets.findOffsets(new OffsetQueries().queries(queries)).execute().getResults();
        List<Long> found = results.stream().map(OffsetOutcome::getOffset).toList();
        check(found.equals(List.of(0L, 3L, 1L)), results);
        check(results.stream().allMatch(each -> each.getError() == null), results);
    }

    private void idempotencyKey() throws ApiException {
        String name = create("idempotency", 1);
        for (String replayed : Arrays.asList(null, "true")) {
            ApiResponse<ProduceResult> answer = records.produceRecords(name, 0, list(text("once")))
                .idempotencyKey(PREFIX + "request")
                .executeWithHttpInfo();
            check(answer.getData().getBaseOffset() == 0, answer.getData());
            List<String> header = answer.getHeaders().get("Idempotent-Replayed");
            check(Objects.equals(header, replayed == null ? null : List.of(replayed)), answer.getHeaders());
        }
        check(values(fetch(name).execute()).equals(List.of("once")), name);
    }

    private void transaction() throws ApiException {
        String name = create("transaction", 1);
        String identity = PREFIX + "writer";
        var producer = transactions.initialiseProducer(new ProducerRequest().transactionalId(identity)).execute();
        records.produceRecords(name, 0, list(text("all or nothing")))
            .producerId(producer.getProducerId())
            .producerEpoch(producer.getProducerEpoch())
            .baseSequence(0)
            .transactionalId(identity)
            .execute();
        check(committed(name).isEmpty(), name);
        var end = new EndTransaction()
            .producerId(producer.getProducerId())
            .producerEpoch(producer.getProducerEpoch());
        transactions.commitTransaction(identity, end).execute();
        check(committed(name).equals(List.of("all or nothing")), name);
    }

    private void job() throws ApiException {
        String name = create("job", 1);
        JobSpecification specification = new JobSpecification()
            .applicationId(PREFIX + "loader")
            .version(1L)
            .mode(JobMode.IDEMPOTENT)
            .topics(List.of(name));
        String id = jobs.beginJob(specification).execute().getJobId();
        var attempt = jobs.enlistAttempt(id, new AttemptSpecification().task(0L)).execute();
        records.produceRecords(name, 0, list(text("loaded")))
            .producerId(attempt.getProducerId())
            .producerEpoch(attempt.getProducerEpoch())
            .baseSequence(0)
            .execute();
        JobWinner winner = new JobWinner().producerId(attempt.getProducerId()).rows(1L);
        var done = jobs.commitJob(id, new JobCommit().winners(List.of(winner))).execute();
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
            page = topics.listTopics().prefix(PREFIX + "page.").limit(2).startAfter(startAfter).execute();
            page.getData().forEach(topic -> found.add(topic.getName()));
            startAfter = page.getNextCursor();
        } while (page.getHasMore());
        check(found.equals(names), found);
    }

    private void notFound() throws IOException {
        Problem found = Problem.fromJson(refusal(404, () -> fetch(PREFIX + "nothing").execute()));
        check("unknown_topic_or_partition".equals(found.getCode()), found);
    }

    private void gone() throws ApiException, IOException {
        String name = create("gone", 1);
        send(name, text("0"), text("1"), text("2"));
        retention.deleteRecords(name, 0, new DeleteRecords().offset(2L)).execute();
        LogStartProblem found = LogStartProblem.fromJson(refusal(410, () -> fetch(name).offset("0").execute()));
        check(found.getLogStartOffset() == 2, found);
    }

    private void beyondTheEnd() throws ApiException, IOException {
        String name = create("end", 1);
        LogEndProblem found = LogEndProblem.fromJson(refusal(416, () -> fetch(name).offset("7").execute()));
        check(found.getLogEndOffset() == 0, found);
    }

    private void precondition() throws ApiException, IOException {
        String name = create("precondition", 1);
        var request = records.produceRecords(name, 0, list(text("late"))).expectedOffset(3L);
        ExpectedOffsetProblem found = ExpectedOffsetProblem.fromJson(refusal(412, request::execute));
        check(found.getLogEndOffset() == 0, found);
    }

    private void authentication() throws IOException {
        ApiClient anonymous = client();
        anonymous.setBearerToken((String) null);
        Problem found = Problem.fromJson(refusal(401, () -> new TopicsApi(anonymous).listTopics().execute()));
        check(!found.getRetryable(), found);
    }

    private static ApiClient client() {
        ApiClient client = new ApiClient();
        client.setBasePath(System.getenv("ROLLWAY_URL"));
        client.setBearerToken(System.getenv("ROLLWAY_API_KEY"));
        // A long poll waits as long as its wait_ms says.
        client.setReadTimeout(0);
        return client;
    }

    private String create(String name, int partitions) throws ApiException {
        TopicSpecification specification = new TopicSpecification().partitions(partitions).config(LARGE);
        return topics.ensureTopic(PREFIX + name, specification).execute().getName();
    }

    private static ProducedRecord text(String value) {
        return new ProducedRecord().value(value);
    }

    private static RecordList list(ProducedRecord... sent) {
        return new RecordList().records(List.of(sent));
    }

    private void send(String topic, ProducedRecord... sent) throws ApiException {
        records.produceRecords(topic, 0, list(sent)).execute();
    }

    private RecordsApi.APIfetchRecordsRequest fetch(String topic) {
        return records.fetchRecords(topic, 0).offset("earliest").maxBytes(100_000_000L);
    }

    private static List<Object> values(FetchResult result) {
        return result.getRecords().stream().map(FetchedRecord::getValue).toList();
    }

    private List<Object> committed(String topic) throws ApiException {
        return values(fetch(topic).isolation(Isolation.READ_COMMITTED).execute());
    }

    /** The body of the problem that the request was answered with. */
    private static String refusal(int status, Request request) {
        try {
            throw new IllegalStateException(status + " expected, not " + brief(request.send()));
        } catch (ApiException error) {
            check(error.getCode() == status, error);
            return error.getResponseBody();
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
