package varve.clients;

import org.kairosdb.client.TelnetClient;
import org.kairosdb.client.builder.MetricBuilder;

/** Sends points by the telnet client, as putm and as put. */
@SuppressWarnings("deprecation")
final class Telnet {
    private Telnet() {}

    static void send(String host, int port) throws Exception {
        TelnetClient client = new TelnetClient(host, port);
        MetricBuilder metrics = MetricBuilder.getInstance();
        metrics.addMetric("telnet.putm").addTag("host", "a").addTag("city", "Zürich")
                .addDataPoint(1700000000000L, 10L).addDataPoint(1700000000001L, 1.5).addDataPoint(1700000000002L, -3.0);
        client.pushMetrics(metrics);

        // put with milliseconds: the client knows no seconds.
        metrics = MetricBuilder.getInstance();
        metrics.addMetric("telnet.put").addTag("host", "a").addDataPoint(1700000000003L, 7L);
        client.putMetrics(metrics);

        // What KairosDB refuses, line by line: a blank in a tag, a text by putm.
        metrics = MetricBuilder.getInstance();
        metrics.addMetric("telnet.blank").addTag("host", "a b").addDataPoint(1700000000000L, 1L);
        metrics.addMetric("telnet.text", "string").addTag("host", "a").addDataPoint(1700000000000L, (Object) "text");
        metrics.addMetric("telnet.last").addTag("host", "a").addDataPoint(1700000000000L, 2L);
        client.pushMetrics(metrics);
        client.shutdown();
    }
}
