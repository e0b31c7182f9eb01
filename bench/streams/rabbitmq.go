package main

import (
	"fmt"
	"sync"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// How many messages may be unconfirmed.
const rabbitPending = 10000

type rabbitServer struct {
	environment *stream.Environment
}

// The client's own socket buffers of 8 KB are too small for loopback's large segments and let every read wait
// for a delayed acknowledgement; 0 leaves their size to the kernel.
func connectRabbit(port int) server {
	options := stream.NewEnvironmentOptions().SetHost("127.0.0.1").SetPort(port).SetReadBuffer(0).SetWriteBuffer(0)
	environment, err := stream.NewEnvironment(options)
	fail(err)
	return &rabbitServer{environment}
}

func (at *rabbitServer) create(name string) { fail(at.environment.DeclareStream(name, nil)) }
func (at *rabbitServer) remove(name string) { fail(at.environment.DeleteStream(name)) }

type rabbitProducer struct {
	producer  *stream.Producer
	one       bool
	lock      sync.Mutex
	confirmed *sync.Cond
	open      int
}

func (at *rabbitServer) produce(name string, one bool) producer {
	inner, err := at.environment.NewProducer(name, nil)
	fail(err)
	outer := &rabbitProducer{producer: inner, one: one}
	outer.confirmed = sync.NewCond(&outer.lock)
	go outer.watch(inner.NotifyPublishConfirmation())
	return outer
}

func (p *rabbitProducer) watch(confirmations stream.ChannelPublishConfirm) {
	for batch := range confirmations {
		for _, each := range batch {
			if !each.IsConfirmed() {
				fail(fmt.Errorf("a message was not confirmed: %v", each.GetError()))
			}
		}
		p.lock.Lock()
		p.open -= len(batch)
		p.lock.Unlock()
		p.confirmed.Broadcast()
	}
}

func (p *rabbitProducer) waitBelow(count int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for p.open >= count {
		p.confirmed.Wait()
	}
}

// Send gathers messages into batches by itself; BatchSend with one message is a request of its own.
func (p *rabbitProducer) send(value []byte) {
	p.waitBelow(rabbitPending)
	p.lock.Lock()
	p.open++
	p.lock.Unlock()
	if p.one {
		fail(p.producer.BatchSend([]message.StreamMessage{amqp.NewMessage(value)}))
	} else {
		fail(p.producer.Send(amqp.NewMessage(value)))
	}
}

func (p *rabbitProducer) await() { p.waitBelow(1) }

func (at *rabbitServer) consume(name string, handle func([]byte)) {
	options := stream.NewConsumerOptions().SetOffset(stream.OffsetSpecification{}.First()).SetCRCCheck(true)
	_, err := at.environment.NewConsumer(name, func(_ stream.ConsumerContext, message *amqp.Message) {
		handle(message.GetData())
	}, options)
	fail(err)
}
