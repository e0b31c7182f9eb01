// The load generator for NATS JetStream and RabbitMQ streams, on their official Go clients: same arguments,
// same kind of values, same output as load.c.
//
//	streams create   server=nats|rabbitmq port=… topic=… partitions=…
//	streams delete   server=… port=… topic=… partitions=…
//	streams produce  server=… port=… topic=… partitions=… count=… size=… [one=1]
//	streams consume  server=… port=… topic=… partitions=… count=…
//	streams latency  server=… port=… topic=… count=… size=…
//	streams endtoend server=… port=… topic=… count=… size=… rate=…
//
// A topic of N partitions is N streams, which is what both servers would have one do.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const poolSize = 8 << 20

// A producer may answer send before the server has: await returns once everything sent is confirmed.
type producer interface {
	send(value []byte)
	await()
}

type server interface {
	create(stream string)
	remove(stream string)
	produce(stream string, one bool) producer
	consume(stream string, handle func(value []byte))
}

var arguments = map[string]string{}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func text(key, fallback string) string {
	if value, found := arguments[key]; found {
		return value
	}
	return fallback
}

func number(key string, fallback int) int {
	value, err := strconv.Atoi(text(key, strconv.Itoa(fallback)))
	fail(err)
	return value
}

func streamNames() []string {
	names := make([]string, number("partitions", 1))
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", text("topic", "bench"), i)
	}
	return names
}

// Words of a small vocabulary in random order, and numbers.
func randomText(size int) []byte {
	random := rand.New(rand.NewSource(1))
	vocabulary := make([]string, 256)
	for i := range vocabulary {
		word := make([]byte, 6+random.Intn(18))
		for j := range word {
			word[j] = byte('a' + random.Intn(26))
		}
		vocabulary[i] = string(word)
	}
	pool := make([]byte, 0, size+32)
	for len(pool) < size {
		if random.Intn(4) > 0 {
			pool = append(pool, vocabulary[random.Intn(256)]...)
		} else {
			pool = strconv.AppendInt(pool, int64(random.Intn(1<<18)), 10)
		}
		pool = append(pool, ' ')
	}
	return pool[:size]
}

func produce(at server) map[string]any {
	count, size := number("count", 1000), number("size", 1024)
	pool := randomText(poolSize + size)
	var producers []producer
	for _, name := range streamNames() {
		producers = append(producers, at.produce(name, text("one", "0") == "1"))
	}
	start := time.Now()
	for i := 0; i < count; i++ {
		from := i * (size + 131) % poolSize
		producers[i%len(producers)].send(pool[from : from+size])
	}
	for _, each := range producers {
		each.await()
	}
	return map[string]any{"seconds": time.Since(start).Seconds(), "messages": count, "bytes": count * size, "failed": 0}
}

func consume(at server) map[string]any {
	count, messages, bytes := number("count", 1000), 0, 0
	var lock sync.Mutex
	var first time.Duration
	done := make(chan bool)
	start := time.Now()
	for _, name := range streamNames() {
		at.consume(name, func(value []byte) {
			lock.Lock()
			defer lock.Unlock()
			if messages == count {
				return
			}
			if messages == 0 {
				first = time.Since(start)
			}
			messages, bytes = messages+1, bytes+len(value)
			if messages == count {
				close(done)
			}
		})
	}
	<-done
	seconds := time.Since(start).Seconds()
	return map[string]any{"seconds": seconds, "messages": count, "bytes": bytes, "first_seconds": first.Seconds()}
}

func percentiles(latencies []time.Duration, start time.Time) map[string]any {
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(share float64) float64 {
		index := min(int(float64(len(latencies))*share), len(latencies)-1)
		return float64(latencies[index].Nanoseconds()) / 1000
	}
	return map[string]any{"seconds": time.Since(start).Seconds(), "messages": len(latencies), "failed": 0,
		"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1)}
}

func latency(at server) map[string]any {
	count, value := number("count", 1000), randomText(number("size", 100))
	sender := at.produce(streamNames()[0], true)
	latencies := make([]time.Duration, 0, count)
	begin := time.Now()
	for i := -count / 10; i < count; i++ {
		start := time.Now()
		sender.send(value)
		sender.await()
		if i >= 0 {
			latencies = append(latencies, time.Since(start))
		}
	}
	return percentiles(latencies, begin)
}

func endToEnd(at server) map[string]any {
	count, interval := number("count", 1000), time.Second/time.Duration(number("rate", 1000))
	latencies, done := make([]time.Duration, 0, count), make(chan bool)
	start := time.Now()
	at.consume(streamNames()[0], func(value []byte) {
		sent := time.Duration(binary.LittleEndian.Uint64(value))
		latencies = append(latencies, time.Since(start)-sent)
		if len(latencies) == count {
			close(done)
		}
	})
	sender := at.produce(streamNames()[0], true)
	begin := time.Now()
	for i := 0; i < count; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * interval)))
		value := make([]byte, number("size", 100))
		binary.LittleEndian.PutUint64(value, uint64(time.Since(start)))
		sender.send(value)
	}
	<-done
	return percentiles(latencies, begin)
}

func forEachStream(act func(string)) map[string]any {
	for _, name := range streamNames() {
		act(name)
	}
	return map[string]any{"streams": len(streamNames())}
}

func run(mode string, at server) map[string]any {
	switch mode {
	case "create":
		return forEachStream(at.create)
	case "delete":
		return forEachStream(at.remove)
	case "produce":
		return produce(at)
	case "consume":
		return consume(at)
	case "latency":
		return latency(at)
	case "endtoend":
		return endToEnd(at)
	}
	fail(fmt.Errorf("unknown mode %s", mode))
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("streams MODE key=value …"))
	}
	for _, argument := range os.Args[2:] {
		key, value, _ := strings.Cut(argument, "=")
		arguments[key] = value
	}
	var at server
	if text("server", "") == "nats" {
		at = connectNats(number("port", 4222))
	} else {
		at = connectRabbit(number("port", 5552))
	}
	fail(json.NewEncoder(os.Stdout).Encode(run(os.Args[1], at)))
	os.Exit(0)
}
