// The few things that tests do with kafkajs. Arguments come as JSON on standard input, or behind the command where that
// is needed for something else; the last line printed is the result. `member` runs until it is ended and prints one
// JSON object a line, as group_member.py does.

const fs = require("fs");
const readline = require("readline");
const { Kafka, CompressionTypes, PartitionAssigners, AssignerProtocol, logLevel } = require("kafkajs");

const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const readArguments = () =>
  new Promise((resolve) => {
    let text = "";
    process.stdin.on("data", (data) => (text += data));
    process.stdin.on("end", () => resolve(JSON.parse(text)));
  });

async function produce(kafka, { topic, messages, gzip, acks }) {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({
    topic,
    acks,
    compression: gzip ? CompressionTypes.GZIP : CompressionTypes.None,
    messages: messages.map((message) => ({ ...message, partition: 0 })),
  });
  await producer.disconnect();
  return null;
}

async function consume(kafka, { topic, count, offset, timestamp }) {
  const admin = kafka.admin();
  await admin.connect();
  if (timestamp !== null) {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
    offset = found.find(({ partition }) => partition === 0).offset;
  }
  await admin.disconnect();
  const consumer = kafka.consumer({ groupId: `once-${process.pid}-${Date.now()}`, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const found = [];
  await new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (partition !== 0 || found.length >= count) return;
        const headers = Object.fromEntries(Object.entries(message.headers).map(([k, v]) => [k, v.toString()]));
        const text = (bytes) => (bytes === null ? null : bytes.toString());
        found.push({ ...message, key: text(message.key), value: text(message.value), headers });
        if (found.length === count) resolve();
      },
    });
    if (offset !== null) consumer.seek({ topic, partition: 0, offset: String(offset) });
  });
  await consumer.disconnect();
  return found;
}

async function administer(kafka, { topic }) {
  const admin = kafka.admin();
  await admin.connect();
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: 2, name: topic, configEntries: [{ name: "retention.ms", value: "12345" }] }],
  });
  const { resources } = await admin.describeConfigs({
    resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
  });
  const { brokers } = await admin.describeCluster();
  const offsets = await admin.fetchTopicOffsets(topic);
  await admin.deleteTopics({ topics: [topic] });
  const left = await admin.listTopics();
  await admin.disconnect();
  return {
    created,
    partitions: topics[0].partitions.length,
    retention: resources[0].configEntries[0].configValue,
    brokers: brokers.length,
    offsets: offsets.length,
    deleted: !left.includes(topic),
  };
}

// Send what comes on standard input, a JSON object a line, until it ends.
async function produceLines(kafka, { topic }) {
  const producer = kafka.producer();
  await producer.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { partition, value } = JSON.parse(line);
    await producer.send({ topic, messages: [{ partition, value }] });
  }
  await producer.disconnect();
  return null;
}

// Print what a group reads, a JSON object a line, until it is ended.
// A consumer that has lost its broker too often joins again as another member, once its group has given up the first.
async function consumeLines(kafka, { topic, group }) {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 500 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => print({ partition, value: message.value.toString() }),
  });
  await new Promise(() => {});
}

// Its own assignor under the name that all other clients know it by, so that it can share a group with them.
function roundRobin(options) {
  const name = "roundrobin";
  const metadata = (topics) => AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) });
  return {
    ...PartitionAssigners.roundRobin(options),
    name,
    protocol: ({ topics }) => ({ name, metadata: metadata(topics) }),
  };
}

async function member(kafka, { topics, group, sessionTimeoutMs }) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: sessionTimeoutMs,
    heartbeatInterval: 300,
    rebalanceTimeout: 10000,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 500,
    partitionAssigners: [roundRobin],
  });
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const assignment = Object.entries(payload.memberAssignment);
    const partitions = assignment.flatMap(([topic, list]) => list.map((partition) => [topic, partition]));
    print({ event: "assigned", partitions });
  });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message, heartbeat }) => {
      print({ event: "record", topic, partition, offset: Number(message.offset), value: message.value.toString() });
      try {
        const offset = String(Number(message.offset) + 1);
        await consumer.commitOffsets([{ topic, partition, offset }]);
        print({ event: "committed", topic, partition, offset: Number(offset) });
      } catch (error) {
        print({ event: "commit_refused", topic, partition, error: error.type || error.message });
        throw error;
      }
      await heartbeat();
    },
  });
  print({ event: "started" });
  await new Promise((resolve) => process.on("SIGTERM", resolve));
  await consumer.disconnect();
  return { event: "left" };
}

// TLS, and a certificate or a login.
function protection({ ca, certificate, mechanism, username, password }) {
  const read = (file) => fs.readFileSync(file, "utf-8");
  const shown = certificate ? { cert: read(certificate), key: read(certificate) } : {};
  return {
    ssl: { ca: [read(ca)], ...shown },
    ...(mechanism ? { sasl: { mechanism, username, password } } : {}),
  };
}

async function main() {
  const options = process.argv[3] ? JSON.parse(process.argv[3]) : await readArguments();
  const kafka = new Kafka({
    brokers: options.bootstrap.split(","),
    clientId: "kafkajs",
    logLevel: options.retry ? logLevel.WARN : logLevel.NOTHING, // to stderr: why it is not there yet
    retry: options.retry,
    ...(options.protected ? protection(options.protected) : {}),
  });
  const command = { produce, consume, administer, member, produceLines, consumeLines }[process.argv[2]];
  const result = await command(kafka, options);
  process.stdout.write(JSON.stringify(result) + "\n", () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
