package varve.clients;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.kairosdb.client.HttpClient;
import org.kairosdb.client.builder.DataPoint;
import org.kairosdb.client.builder.Metric;
import org.kairosdb.client.builder.MetricBuilder;
import org.kairosdb.client.builder.QueryBuilder;
import org.kairosdb.client.builder.QueryTagBuilder;
import org.kairosdb.client.builder.QueryTagMetric;
import org.kairosdb.client.builder.RelativeTime;
import org.kairosdb.client.builder.RollupBuilder;
import org.kairosdb.client.builder.RollupTask;
import org.kairosdb.client.builder.TimeUnit;
import org.kairosdb.client.response.QueryResponse;
import org.kairosdb.client.response.QueryResult;
import org.kairosdb.client.response.QueryTagResponse;
import org.kairosdb.client.response.Result;
import org.kairosdb.client.response.TagQueryResult;
import org.kairosdb.client.response.TagResult;
import org.kairosdb.client.response.UnexpectedResponseException;

/**
 * Calls one KairosDB client, with its pool of two connections, by commands. Each line of input is
 * a command and a JSON argument; each is answered by one line of JSON: {"ok": what the client
 * returned} or {"error": [classes of the exception and its causes], "status", "message"}.
 */
final class Shell {
    private final HttpClient client;
    private final Gson gson = new GsonBuilder().serializeSpecialFloatingPointValues().create();

    Shell(String url) throws Exception {
        client = new HttpClient(url);
    }

    void run(InputStream in, PrintStream out) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                int blank = line.indexOf(' ');
                answer.put("ok", call(line.substring(0, blank), JsonParser.parseString(line.substring(blank + 1))));
            } catch (Exception e) {
                explain(e, answer);
            }
            answers.println(gson.toJson(answer));
        }
        client.close();
    }

    private static void explain(Throwable e, Map<String, Object> answer) {
        List<String> classes = new ArrayList<>();
        answer.put("error", classes);
        answer.put("message", String.valueOf(e));
        for (; e != null; e = e.getCause()) {
            classes.add(e.getClass().getSimpleName());
            if (e instanceof UnexpectedResponseException u) {
                answer.put("status", u.getStatusCode());
            }
        }
    }

    private Object call(String command, JsonElement argument) throws Exception {
        switch (command) {
            case "push":
                client.pushMetrics(metrics(argument.getAsJsonObject()));
                return "";
            case "query":
                return results(client.query(Queries.of(argument.getAsJsonObject())));
            case "tags":
                return tags(client.queryTags(tagQuery(argument.getAsJsonObject())));
            case "names":
                return client.getMetricNames();
            case "version":
                return client.getVersion();
            case "status":
                return client.getStatus();
            case "check":
                return client.getStatusCheck();
            case "delete":
                client.delete(Queries.of(argument.getAsJsonObject()));
                return "";
            case "deleteMetric":
                client.deleteMetric(argument.getAsString());
                return "";
            case "createRollup":
                return task(client.createRollupTask(rollup(argument.getAsJsonObject())));
            case "rollups":
                return client.getRollupTasks().stream().map(Shell::task).toList();
            case "rollup":
                return task(client.getRollupTask(argument.getAsString()));
            case "deleteRollup":
                client.deleteRollupTask(argument.getAsString());
                return "";
            default:
                throw new IllegalArgumentException(command);
        }
    }

    /** {"gzip": b, "metrics": [{"name", "type", "ttl", "tags", "points": [[time, value]]}]}; a value with a point is a double. */
    static MetricBuilder metrics(JsonObject argument) {
        MetricBuilder builder = MetricBuilder.getInstance();
        builder.setCompression(argument.has("gzip"));
        for (JsonElement each : argument.getAsJsonArray("metrics")) {
            JsonObject m = each.getAsJsonObject();
            String name = m.get("name").getAsString();
            Metric metric = m.has("type") ? builder.addMetric(name, m.get("type").getAsString()) : builder.addMetric(name);
            m.getAsJsonObject("tags").entrySet().forEach(tag -> metric.addTag(tag.getKey(), tag.getValue().getAsString()));
            if (m.has("ttl")) {
                metric.addTtl(m.get("ttl").getAsInt());
            }
            for (JsonElement point : m.getAsJsonArray("points")) {
                long time = point.getAsJsonArray().get(0).getAsLong();
                JsonElement value = point.getAsJsonArray().get(1);
                if (m.has("type")) {
                    metric.addDataPoint(time, (Object) value.getAsString());
                } else if (value.getAsString().contains(".")) {
                    metric.addDataPoint(time, value.getAsDouble());
                } else {
                    metric.addDataPoint(time, value.getAsLong());
                }
            }
        }
        return builder;
    }

    private static QueryTagBuilder tagQuery(JsonObject argument) {
        QueryTagBuilder builder = QueryTagBuilder.getInstance();
        builder.setStart(1, TimeUnit.YEARS);
        QueryTagMetric metric = builder.addMetric(argument.get("name").getAsString());
        argument.getAsJsonObject("tags").entrySet().forEach(tag -> metric.addTag(tag.getKey(), tag.getValue().getAsString()));
        return builder;
    }

    /** {"name", "save_as", "query"} */
    private static RollupBuilder rollup(JsonObject argument) {
        RollupBuilder builder = RollupBuilder.getInstance(argument.get("name").getAsString(), new RelativeTime(1, TimeUnit.HOURS));
        QueryBuilder query = builder.addRollup(argument.get("save_as").getAsString()).addQuery();
        Queries.fill(query, argument.getAsJsonObject("query"));
        return builder;
    }

    private static Object results(QueryResponse response) {
        List<Object> queries = new ArrayList<>();
        for (QueryResult query : response.getQueries()) {
            List<Object> results = new ArrayList<>();
            for (Result r : query.getResults()) {
                List<List<Object>> points = new ArrayList<>();
                for (DataPoint p : r.getDataPoints()) {
                    points.add(java.util.Arrays.asList(p.getTimestamp(), p.getValue()));
                }
                List<String> groups = r.getGroupResults().stream().map(Groups::text).toList();
                results.add(Map.of("name", r.getName(), "tags", r.getTags(), "groups", groups, "points", points));
            }
            queries.add(Map.of("sampleSize", query.getSampleSize(), "results", results));
        }
        return queries;
    }

    private static Object tags(QueryTagResponse response) {
        List<Object> all = new ArrayList<>();
        for (TagQueryResult query : response.getQueries()) {
            for (TagResult r : query.getResults()) {
                all.add(Map.of("name", r.getName(), "tags", r.getTags()));
            }
        }
        return all;
    }

    private static Object task(RollupTask t) {
        Map<String, Object> task = new LinkedHashMap<>();
        task.put("id", t.getId());
        task.put("name", t.getName());
        RelativeTime every = t.getExecutionInterval();
        task.put("interval", every == null ? "" : every.getValue() + " " + every.getUnit());
        task.put("rollups", t.getRollups() == null ? List.of() : t.getRollups().stream()
                .map(r -> Map.of("save_as", r.getSaveAs(), "metrics", r.getMetrics().stream()
                        .map(m -> m.getName() + " " + m.getAggregators().size()).toList()))
                .toList());
        return task;
    }
}
