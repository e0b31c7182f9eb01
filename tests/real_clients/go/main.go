// A transactional producer, and consumer, on franz-go, which speaks the protocol of transaction.version 2 (KIP-890).
//
//	transactions BOOTSTRAP TOPIC ROUNDS            each round is "value:commit" or "value:abort"
//	transform    BOOTSTRAP FROM TO GROUP COUNT     consume, transform and produce until so many records are through
//	roundtrip    BOOTSTRAP TOPIC VALUE             produce one record and consume it, over TLS, as the environment says:
//	                                               CA, CERTIFICATE (with its key), MECHANISM, USERNAME, PASSWORD
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

func protected() []kgo.Opt {
	authority, err := os.ReadFile(os.Getenv("CA"))
	check(err)
	settings := &tls.Config{RootCAs: x509.NewCertPool()}
	settings.RootCAs.AppendCertsFromPEM(authority)
	if file := os.Getenv("CERTIFICATE"); file != "" {
		certificate, err := tls.LoadX509KeyPair(file, file)
		check(err)
		settings.Certificates = []tls.Certificate{certificate}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(settings)}
	user, password := os.Getenv("USERNAME"), os.Getenv("PASSWORD")
	switch os.Getenv("MECHANISM") {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return options
}

func roundtrip(ctx context.Context, bootstrap, topic, value string) {
	client, err := kgo.NewClient(append(protected(),
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	check(err)
	defer client.Close()
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
	for {
		fetches := client.PollFetches(ctx)
		check(ctx.Err())
		for _, record := range fetches.Records() {
			fmt.Println(string(record.Value))
			return
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
	case "roundtrip":
		roundtrip(ctx, arguments[0], arguments[1], arguments[2])
	case "transform":
		count, err := strconv.Atoi(arguments[4])
		check(err)
		transform(ctx, arguments[0], arguments[1], arguments[2], arguments[3], count)
	}
}
