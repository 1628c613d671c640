package varve.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.TimeZone;
import org.kairosdb.client.builder.Aggregator;
import org.kairosdb.client.builder.AggregatorFactory;
import org.kairosdb.client.builder.Grouper;
import org.kairosdb.client.builder.QueryBuilder;
import org.kairosdb.client.builder.QueryMetric;
import org.kairosdb.client.builder.RelativeTime;
import org.kairosdb.client.builder.TimeUnit;
import org.kairosdb.client.builder.aggregator.SamplingAggregator;
import org.kairosdb.client.builder.grouper.BinGrouper;
import org.kairosdb.client.builder.grouper.TagGrouper;
import org.kairosdb.client.builder.grouper.TimeGrouper;
import org.kairosdb.client.builder.grouper.ValueGrouper;

/**
 * Builds queries by the client's builders from a short form:
 *
 * <pre>
 * {"start": ms or "2 HOURS", "end", "zone", "cache", "metrics": [
 *   {"name", "tags": {"host": ["a"]}, "limit", "order", "exclude_tags",
 *    "aggregators": [["sum", 1, "MINUTES", "align_start"], ["filter", "LTE", 10]],
 *    "groups": [["tag", "host"], ["time", 1, "HOURS", 24], ["value", 10], ["bin", 1, 2.5]]}]}
 * </pre>
 */
final class Queries {
    private Queries() {}

    static QueryBuilder of(JsonObject q) {
        return fill(QueryBuilder.getInstance(), q);
    }

    static QueryBuilder fill(QueryBuilder builder, JsonObject q) {
        if (isRelative(q.get("start"))) {
            builder.setStart(count(q.get("start")), unit(q.get("start")));
        } else {
            builder.setStart(new Date(q.get("start").getAsLong()));
        }
        if (q.has("end") && isRelative(q.get("end"))) {
            builder.setEnd(count(q.get("end")), unit(q.get("end")));
        } else if (q.has("end")) {
            builder.setEnd(new Date(q.get("end").getAsLong()));
        }
        if (q.has("zone")) {
            builder.setTimeZone(TimeZone.getTimeZone(q.get("zone").getAsString()));
        }
        if (q.has("cache")) {
            builder.setCacheTime(q.get("cache").getAsInt());
        }
        for (JsonElement m : q.getAsJsonArray("metrics")) {
            metric(builder, m.getAsJsonObject());
        }
        return builder;
    }

    private static boolean isRelative(JsonElement time) {
        return time.getAsString().contains(" ");
    }

    private static int count(JsonElement time) {
        return Integer.parseInt(time.getAsString().split(" ")[0]);
    }

    private static TimeUnit unit(JsonElement time) {
        return TimeUnit.valueOf(time.getAsString().split(" ")[1]);
    }

    private static void metric(QueryBuilder builder, JsonObject m) {
        QueryMetric metric = builder.addMetric(m.get("name").getAsString());
        if (m.has("tags")) {
            m.getAsJsonObject("tags").entrySet().forEach(tag -> metric.addTag(tag.getKey(), texts(tag.getValue().getAsJsonArray(), 0)));
        }
        if (m.has("limit")) {
            metric.setLimit(m.get("limit").getAsInt());
        }
        if (m.has("order")) {
            metric.setOrder(QueryMetric.Order.valueOf(m.get("order").getAsString()));
        }
        if (m.has("exclude_tags")) {
            metric.setExcludeTags(m.get("exclude_tags").getAsBoolean());
        }
        for (JsonElement a : lists(m, "aggregators")) {
            metric.addAggregator(aggregator(a.getAsJsonArray()));
        }
        for (JsonElement g : lists(m, "groups")) {
            metric.addGrouper(grouper(g.getAsJsonArray()));
        }
    }

    private static JsonArray lists(JsonObject m, String key) {
        return m.has(key) ? m.getAsJsonArray(key) : new JsonArray();
    }

    private static String[] texts(JsonArray list, int from) {
        List<String> texts = new ArrayList<>();
        for (int i = from; i < list.size(); i++) {
            texts.add(list.get(i).getAsString());
        }
        return texts.toArray(new String[0]);
    }

    private static Aggregator aggregator(JsonArray a) {
        String name = a.get(0).getAsString();
        switch (name) {
            case "percentile":
                return AggregatorFactory.createPercentileAggregator(a.get(1).getAsDouble(), a.get(2).getAsLong(), TimeUnit.valueOf(a.get(3).getAsString()));
            case "div":
                return AggregatorFactory.createDivAggregator(a.get(1).getAsDouble());
            case "diff":
                return AggregatorFactory.createDiffAggregator();
            case "sampler":
                return AggregatorFactory.createSamplerAggregator();
            case "sma":
                return AggregatorFactory.createSimpleMovingAverage(a.get(1).getAsInt());
            case "scale":
                return AggregatorFactory.createScaleAggregator(a.get(1).getAsDouble());
            case "rate":
                return AggregatorFactory.createRateAggregator(TimeUnit.valueOf(a.get(1).getAsString()));
            case "save_as":
                return AggregatorFactory.createSaveAsAggregator(a.get(1).getAsString());
            case "trim":
                return AggregatorFactory.createTrimAggregator(AggregatorFactory.Trim.valueOf(a.get(1).getAsString()));
            case "filter":
                return AggregatorFactory.createFilterAggregator(AggregatorFactory.FilterOperation.valueOf(a.get(1).getAsString()), a.get(2).getAsDouble());
            case "custom":
                return AggregatorFactory.createCustomAggregator(a.get(1).getAsString(), a.get(2).getAsString());
            default:
                return aligned(ranged(name, a.get(1).getAsLong(), TimeUnit.valueOf(a.get(2).getAsString())), texts(a, 3));
        }
    }

    private static SamplingAggregator ranged(String name, long value, TimeUnit unit) {
        return switch (name) {
            case "min" -> AggregatorFactory.createMinAggregator(value, unit);
            case "max" -> AggregatorFactory.createMaxAggregator(value, unit);
            case "avg" -> AggregatorFactory.createAverageAggregator(value, unit);
            case "dev" -> AggregatorFactory.createStandardDeviationAggregator(value, unit);
            case "sum" -> AggregatorFactory.createSumAggregator(value, unit);
            case "count" -> AggregatorFactory.createCountAggregator(value, unit);
            case "last" -> AggregatorFactory.createLastAggregator(value, unit);
            case "first" -> AggregatorFactory.createFirstAggregator(value, unit);
            case "gaps" -> AggregatorFactory.createDataGapsMarkingAggregator(value, unit);
            case "least_squares" -> AggregatorFactory.createLeastSquaresAggregator(value, unit);
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static Aggregator aligned(SamplingAggregator aggregator, String[] how) {
        for (String each : how) {
            switch (each) {
                case "sampling" -> aggregator.withSamplingAlignment();
                case "start" -> aggregator.withStartTimeAlignment();
                case "end" -> aggregator.withEndTimeAlignment();
                default -> throw new IllegalArgumentException(each);
            }
        }
        return aggregator;
    }

    private static Grouper grouper(JsonArray g) {
        switch (g.get(0).getAsString()) {
            case "tag":
                return new TagGrouper(texts(g, 1));
            case "time":
                return new TimeGrouper(new RelativeTime(g.get(1).getAsInt(), TimeUnit.valueOf(g.get(2).getAsString())), g.get(3).getAsInt());
            case "value":
                return new ValueGrouper(g.get(1).getAsInt());
            case "bin":
                List<Double> bins = new ArrayList<>();
                for (int i = 1; i < g.size(); i++) {
                    bins.add(g.get(i).getAsDouble());
                }
                return new BinGrouper(bins);
            default:
                throw new IllegalArgumentException(g.toString());
        }
    }
}
