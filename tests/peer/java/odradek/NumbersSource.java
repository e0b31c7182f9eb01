package odradek;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Each of its tasks counts 0, 1, 2, ... into the topic "numbers", with the name of the task as the key. */
public final class NumbersSource extends SourceConnector {
    @Override
    public void start(Map<String, String> settings) {}

    @Override
    public void stop() {}

    @Override
    public String version() {
        return "1";
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        List<Map<String, String>> tasks = new ArrayList<>();
        for (int task = 0; task < maxTasks; task++) {
            tasks.add(Map.of("task", String.valueOf(task)));
        }
        return tasks;
    }

    /** Goes on where the offset of the last committed transaction says. */
    public static final class Numbers extends SourceTask {
        private static final int RECORDS = 10;
        private static final long PAUSE_MS = 20;

        private String task;
        private long next;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> settings) {
            task = settings.get("task");
            Map<String, Object> offset = context.offsetStorageReader().offset(Map.of("task", task));
            next = offset == null ? 0 : ((Number) offset.get("next")).longValue();
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(PAUSE_MS);
            List<SourceRecord> records = new ArrayList<>();
            while (records.size() < RECORDS) {
                String number = String.valueOf(next++);
                Map<String, Object> offset = new HashMap<>(Map.of("next", next));
                records.add(new SourceRecord(
                        Map.of("task", task), offset, "numbers", Schema.STRING_SCHEMA, task, Schema.STRING_SCHEMA, number));
            }
            return records;
        }

        @Override
        public void stop() {}
    }
}
