package main

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// How many messages may be unconfirmed: the client's own default.
const natsPending = 4000

type natsServer struct {
	context nats.JetStreamContext
}

func connectNats(port int) server {
	connection, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port))
	fail(err)
	context, err := connection.JetStream(nats.PublishAsyncMaxPending(natsPending), nats.MaxWait(30*time.Second),
		nats.PublishAsyncErrHandler(func(_ nats.JetStream, _ *nats.Msg, err error) { fail(err) }))
	fail(err)
	return &natsServer{context}
}

func (at *natsServer) create(stream string) {
	_, err := at.context.AddStream(&nats.StreamConfig{Name: stream, Subjects: []string{stream}, Storage: nats.FileStorage})
	fail(err)
}

func (at *natsServer) remove(stream string) { fail(at.context.DeleteStream(stream)) }

type natsProducer struct {
	context nats.JetStreamContext
	subject string
}

// JetStream has no batches: every message is a request of its own, `one` or not.
func (at *natsServer) produce(stream string, one bool) producer {
	return &natsProducer{at.context, stream}
}

func (p *natsProducer) send(value []byte) {
	_, err := p.context.PublishAsync(p.subject, value, nats.StallWait(30*time.Second))
	fail(err)
}

func (p *natsProducer) await() { <-p.context.PublishAsyncComplete() }

// An ordered consumer: pushed by the server, without acknowledgements, as a log is read.
func (at *natsServer) consume(stream string, handle func([]byte)) {
	_, err := at.context.Subscribe(stream, func(message *nats.Msg) { handle(message.Data) }, nats.OrderedConsumer())
	fail(err)
}
