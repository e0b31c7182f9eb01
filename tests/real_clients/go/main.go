// A transactional producer, and consumer, on franz-go, which speaks the protocol of transaction.version 2 (KIP-890).
//
//	transactions BOOTSTRAP TOPIC ROUNDS            each round is "value:commit" or "value:abort"
//	transform    BOOTSTRAP FROM TO GROUP COUNT     consume, transform and produce until so many records are through
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func transactions(ctx context.Context, bootstrap, topic string, rounds []string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.TransactionalID("tx-"+topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check(err)
	defer client.Close()
	for _, round := range rounds {
		value, end, _ := strings.Cut(round, ":")
		check(client.BeginTransaction())
		for partition := int32(0); partition < 3; partition++ {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
			check(client.ProduceSync(ctx, record).FirstErr())
		}
		how := kgo.TryCommit
		if end == "abort" {
			how = kgo.TryAbort
		}
		check(client.EndTransaction(ctx, how))
	}
}

func transform(ctx context.Context, bootstrap, from, to, group string, count int) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.TransactionalID("transform-"+group),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)
	check(err)
	defer session.Close()
	for done := 0; done < count; {
		fetches := session.PollRecords(ctx, 10)
		check(fetches.Err())
		check(session.Begin())
		promise := kgo.AbortingFirstErrPromise(session.Client())
		got := 0
		fetches.EachRecord(func(record *kgo.Record) {
			got++
			session.Produce(ctx, &kgo.Record{Topic: to, Value: append([]byte("got "), record.Value...)}, promise.Promise())
		})
		committed, err := session.End(ctx, promise.Err() == nil)
		check(err)
		if committed {
			done += got
		}
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "transactions":
		transactions(ctx, arguments[0], arguments[1], arguments[2:])
	case "transform":
		count, err := strconv.Atoi(arguments[4])
		check(err)
		transform(ctx, arguments[0], arguments[1], arguments[2], arguments[3], count)
	}
}
