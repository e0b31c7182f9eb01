package odradek;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/**
 * Writes a file for each partition: a line with the offset, key and value of each record. A file is its own offset, so
 * what a killed task wrote is not written again: the next one cuts off half a line and reads on behind the last offset.
 */
public final class FilesSink extends SinkConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

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
    public Class<? extends Task> taskClass() {
        return Lines.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return Collections.nCopies(maxTasks, settings);
    }

    /** The task that writes the files of its partitions. */
    public static final class Lines extends SinkTask {
        private Path directory;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> settings) {
            directory = Path.of(settings.get("directory"));
        }

        @Override
        public void open(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) {
                List<String> lines = wholeLines(fileOf(partition.partition()));
                if (!lines.isEmpty()) {
                    String last = lines.get(lines.size() - 1);
                    context.offset(partition, Long.parseLong(last.substring(0, last.indexOf(' '))) + 1);
                }
            }
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                String line = record.kafkaOffset() + " " + record.key() + " " + record.value() + "\n";
                try (RandomAccessFile file = new RandomAccessFile(fileOf(record.kafkaPartition()).toFile(), "rw")) {
                    file.seek(file.length());
                    file.write(line.getBytes(StandardCharsets.UTF_8));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        }

        @Override
        public void stop() {}

        private Path fileOf(int partition) {
            return directory.resolve("partition-" + partition);
        }

        private static List<String> wholeLines(Path path) {
            if (!Files.exists(path)) {
                return new ArrayList<>();
            }
            try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
                String text = Files.readString(path);
                int end = text.lastIndexOf('\n') + 1;
                file.setLength(end);
                return text.substring(0, end).lines().toList();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
