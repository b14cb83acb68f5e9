/* Load generator in C, so that the client is not the bottleneck of a benchmark.
 *
 * Uses the librdkafka of the confluent-kafka package, opened by path: the same client library
 * for every broker, newer than most distributions', and no headers to install. The few
 * declarations below are librdkafka's stable public ABI.
 *
 *   load LIBRARY produce BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [name=value ...]
 *   load LIBRARY consume BOOTSTRAP TOPIC PARTITIONS COUNT SIZE [name=value ...]
 *   load LIBRARY latency BOOTSTRAP TOPIC PARTITIONS COUNT SIZE RATE [name=value ...]
 *   load LIBRARY txns    BOOTSTRAP TOPIC PARTITIONS COUNT SIZE INTERVAL_MS [name=value ...]
 *
 * Prints one line of JSON; on failure exits with 1 and prints a message to stderr.
 * In latency mode name=value goes to the producer; every payload starts with its send time.
 * In txns mode the producer is transactional and commits every INTERVAL_MS.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PRODUCER = 0, CONSUMER = 1, CONF_OK = 0, QUEUE_FULL = -184, F_PARTITION = 0x8, F_COPY = 0x2 };
enum { BATCH = 2000, OFFSET_BEGINNING = -2, OFFSET_END = -1, STALL_S = 60 };

typedef struct {
  int err;
  void *topic;
  int32_t partition;
  void *payload;
  size_t len;
  void *key;
  size_t key_len;
  int64_t offset;
  void *opaque;
} message;

typedef struct rk rk;
static void *(*conf_new)(void);
static int (*conf_set)(void *, const char *, const char *, char *, size_t);
static void (*conf_set_dr_msg_cb)(void *, void (*)(rk *, const message *, void *));
static rk *(*client_new)(int, void *, char *, size_t);
static void *(*topic_new)(rk *, const char *, void *);
static int (*produce_batch)(void *, int32_t, int, message *, int);
static int (*client_poll)(rk *, int);
static void *(*queue_new)(rk *);
static int (*consume_start_queue)(void *, int32_t, int64_t, void *);
static ssize_t (*consume_batch_queue)(void *, int, message **, size_t);
static void (*message_destroy)(message *);
static int (*client_metadata)(rk *, int, void *, const void **, int);
static int (*query_watermark_offsets)(rk *, const char *, int32_t, int64_t *, int64_t *, int);
static const char *(*err2str)(int);
/* Each returns NULL or an error message. */
static void *(*init_transactions)(rk *, int);
static void *(*begin_transaction)(rk *);
static void *(*commit_transaction)(rk *, int);
static const char *(*error_string)(const void *);
static int (*client_flush)(rk *, int);

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) die("not in this librdkafka", name);
  return found;
}

static void open_library(const char *path) {
  void *l = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!l) die("cannot open librdkafka", dlerror());
  conf_new = symbol(l, "rd_kafka_conf_new");
  conf_set = symbol(l, "rd_kafka_conf_set");
  conf_set_dr_msg_cb = symbol(l, "rd_kafka_conf_set_dr_msg_cb");
  client_new = symbol(l, "rd_kafka_new");
  topic_new = symbol(l, "rd_kafka_topic_new");
  produce_batch = symbol(l, "rd_kafka_produce_batch");
  client_poll = symbol(l, "rd_kafka_poll");
  queue_new = symbol(l, "rd_kafka_queue_new");
  consume_start_queue = symbol(l, "rd_kafka_consume_start_queue");
  consume_batch_queue = symbol(l, "rd_kafka_consume_batch_queue");
  message_destroy = symbol(l, "rd_kafka_message_destroy");
  client_metadata = symbol(l, "rd_kafka_metadata");
  query_watermark_offsets = symbol(l, "rd_kafka_query_watermark_offsets");
  err2str = symbol(l, "rd_kafka_err2str");
  init_transactions = symbol(l, "rd_kafka_init_transactions");
  begin_transaction = symbol(l, "rd_kafka_begin_transaction");
  commit_transaction = symbol(l, "rd_kafka_commit_transaction");
  error_string = symbol(l, "rd_kafka_error_string");
  client_flush = symbol(l, "rd_kafka_flush");
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t delivered, failed;
static int last_error;

static void on_delivery(rk *client, const message *m, void *opaque) {
  (void)client, (void)opaque;
  if (m->err) failed++, last_error = m->err;
  else delivered++;
}

static rk *connect_client(int kind, const char *bootstrap, int settings, char **setting) {
  char why[512];
  void *conf = conf_new();
  if (conf_set(conf, "bootstrap.servers", bootstrap, why, sizeof why) != CONF_OK) die("conf", why);
  for (int i = 0; i < settings; i++) {
    char *copy = strdup(setting[i]), *value = strchr(copy, '=');
    if (!value) die("a setting is name=value", copy);
    *value++ = 0;
    if (conf_set(conf, copy, value, why, sizeof why) != CONF_OK) die("conf", why);
    free(copy);
  }
  if (kind == PRODUCER) conf_set_dr_msg_cb(conf, on_delivery);
  rk *client = client_new(kind, conf, why, sizeof why);
  if (!client) die("client", why);
  return client;
}

/* Connects and loads metadata before the clock starts. */
static void *ready_topic(rk *client, const char *name) {
  void *topic = topic_new(client, name, NULL);
  const void *metadata;
  int err = client_metadata(client, 0, topic, &metadata, 30000);
  if (err) die("metadata", err2str(err));
  int64_t low, high;
  err = query_watermark_offsets(client, name, 0, &low, &high, 30000);
  if (err) die("watermarks", err2str(err));
  return topic;
}

/* Messages to produce, round-robin over the partitions. */
typedef struct {
  void *topic;
  int partitions;
  int64_t count, queued;
  size_t size;
  char *payload;
  message batch[BATCH];
  int filled; /* messages that the full queue refused, first in the next batch */
} source;

static source *open_source(void *topic, int partitions, int64_t count, size_t size) {
  source *s = calloc(1, sizeof *s);
  *s = (source){.topic = topic, .partitions = partitions, .count = count, .size = size};
  s->payload = malloc(size);
  for (size_t i = 0; i < size; i++) s->payload[i] = (char)(rand() & 0xff);
  return s;
}

/* Adds the next batch to the queue; 0 if it was full or nothing is left. */
static int offer(source *s) {
  int64_t left = s->count - s->queued - s->filled;
  for (; s->filled < BATCH && left > 0; s->filled++, left--)
    s->batch[s->filled] = (message){
        .payload = s->payload,
        .len = s->size,
        .partition = (int32_t)((s->queued + s->filled) % s->partitions),
    };
  if (!s->filled) return 0;
  for (int i = 0; i < s->filled; i++) s->batch[i].err = 0;
  produce_batch(s->topic, 0, F_PARTITION, s->batch, s->filled);
  int kept = 0;
  for (int i = 0; i < s->filled; i++)
    if (s->batch[i].err == QUEUE_FULL) s->batch[kept++] = s->batch[i];
    else if (s->batch[i].err) die("produce", err2str(s->batch[i].err));
  s->queued += s->filled - kept;
  s->filled = kept;
  return !kept;
}

static void produce(rk *client, void *topic, int partitions, int64_t count, size_t size) {
  source *s = open_source(topic, partitions, count, size);
  int64_t start = now_ns(), progress = start, seen = 0;
  while (delivered + failed < count) {
    client_poll(client, offer(s) ? 0 : 10);
    if (delivered + failed != seen) seen = delivered + failed, progress = now_ns();
    if (now_ns() - progress > (int64_t)STALL_S * 1000000000) die("produce", "no delivery for 60 s");
  }
  if (failed) die("delivery failed", err2str(last_error));
  double seconds = (now_ns() - start) / 1e9;
  printf("{\"messages\": %ld, \"seconds\": %.6f}\n", (long)delivered, seconds);
}

static void require_done(const char *what, const void *error) {
  if (error) die(what, error_string(error));
}

/* Full speed, with a commit after each interval. A commit is timed from the moment when
 * every record is delivered, so that it measures the coordinator and not the queue. */
static void commit_often(rk *client, void *topic, int partitions, int64_t count, size_t size,
                         int64_t interval_ms) {
  source *s = open_source(topic, partitions, count, size);
  require_done("init_transactions", init_transactions(client, STALL_S * 1000));
  int64_t start = now_ns(), commits = 0, committing = 0;
  while (s->queued < count) {
    int64_t due = now_ns() + interval_ms * 1000000;
    require_done("begin_transaction", begin_transaction(client));
    while (now_ns() < due && s->queued < count) client_poll(client, offer(s) ? 0 : 1);
    if (client_flush(client, STALL_S * 1000)) die("flush", "no delivery for 60 s");
    int64_t began = now_ns();
    require_done("commit_transaction", commit_transaction(client, STALL_S * 1000));
    committing += now_ns() - began;
    commits++;
  }
  if (failed) die("delivery failed", err2str(last_error));
  double seconds = (now_ns() - start) / 1e9;
  printf("{\"messages\": %ld, \"seconds\": %.6f, \"commits\": %ld, \"commit_ms\": %.4f}\n",
         (long)delivered, seconds, (long)commits, committing / 1e6 / commits);
}

static void *start_reading(rk *client, void *topic, int partitions, int64_t offset) {
  void *queue = queue_new(client);
  for (int p = 0; p < partitions; p++)
    if (consume_start_queue(topic, p, offset, queue) == -1) die("consume", "cannot start");
  return queue;
}

static void consume(rk *client, void *topic, int partitions, int64_t count, size_t size) {
  message **batch = calloc(BATCH, sizeof *batch);
  int64_t got = 0, start = now_ns();
  void *queue = start_reading(client, topic, partitions, OFFSET_BEGINNING);
  while (got < count) {
    /* Waits until the batch is full, so the last one requests only the rest. */
    size_t want = count - got < BATCH ? count - got : BATCH;
    ssize_t n = consume_batch_queue(queue, STALL_S * 1000, batch, want);
    if (n <= 0) die("consume", "no message for 60 s");
    for (ssize_t i = 0; i < n; i++) {
      if (batch[i]->err) die("consume", err2str(batch[i]->err));
      if (batch[i]->len != size) die("consume", "a message has another size than was sent");
      message_destroy(batch[i]);
    }
    got += n;
  }
  double seconds = (now_ns() - start) / 1e9;
  printf("{\"messages\": %ld, \"seconds\": %.6f}\n", (long)got, seconds);
}

typedef struct {
  rk *client;
  void *topic;
  int partitions;
  int64_t count, rate;
  size_t size;
} schedule;

/* Sends at a fixed rate, independent of the broker's replies. */
static void *send_paced(void *argument) {
  schedule *s = argument;
  char *payload = calloc(1, s->size);
  int64_t start = now_ns();
  for (int64_t i = 0; i < s->count; i++) {
    int64_t due = start + i * 1000000000 / s->rate;
    struct timespec t = {due / 1000000000, due % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    int64_t sent = now_ns();
    memcpy(payload, &sent, sizeof sent);
    message m = {.payload = payload, .len = s->size, .partition = (int32_t)(i % s->partitions)};
    if (produce_batch(s->topic, 0, F_PARTITION | F_COPY, &m, 1) != 1) die("produce", err2str(m.err));
    client_poll(s->client, 0);
  }
  for (int i = 0; i < STALL_S * 10 && delivered + failed < s->count; i++) client_poll(s->client, 100);
  if (failed || delivered < s->count) die("latency", "not every message was delivered");
  return NULL;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static void latency(schedule *s, rk *reader, void *topic) {
  int64_t *took = calloc(s->count, sizeof *took), got = 0, warm = s->count / 10;
  void *queue = start_reading(reader, topic, s->partitions, OFFSET_END);
  /* The consumer looks up the end of the log before the first message is sent. */
  struct timespec settle = {1, 0};
  nanosleep(&settle, NULL);
  pthread_t sender;
  pthread_create(&sender, NULL, send_paced, s);
  while (got < s->count) {
    message *m;
    if (consume_batch_queue(queue, STALL_S * 1000, &m, 1) != 1) die("consume", "no message for 60 s");
    int64_t sent, arrived = now_ns();
    if (m->err) die("consume", err2str(m->err));
    memcpy(&sent, m->payload, sizeof sent);
    took[got++] = arrived - sent;
    message_destroy(m);
  }
  pthread_join(sender, NULL);
  /* The first tenth warms up caches, connections and a JVM, and is not counted. */
  int64_t n = s->count - warm, *t = took + warm;
  qsort(t, n, sizeof *t, by_value);
  printf("{\"messages\": %ld, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f}\n",
         (long)n, t[n / 2] / 1e6, t[n * 99 / 100] / 1e6, t[n * 999 / 1000] / 1e6, t[n - 1] / 1e6);
}

int main(int argc, char **argv) {
  if (argc < 8) die("usage", "load LIBRARY MODE BOOTSTRAP TOPIC PARTITIONS COUNT SIZE ...");
  open_library(argv[1]);
  const char *mode = argv[2], *bootstrap = argv[3], *name = argv[4];
  int partitions = atoi(argv[5]);
  int64_t count = atoll(argv[6]);
  size_t size = (size_t)atoll(argv[7]);
  int settings_at = 8 + (!strcmp(mode, "latency") || !strcmp(mode, "txns"));
  int kind = strcmp(mode, "consume") ? PRODUCER : CONSUMER;
  rk *client = connect_client(kind, bootstrap, argc - settings_at, argv + settings_at);
  void *topic = ready_topic(client, name);
  if (!strcmp(mode, "produce")) produce(client, topic, partitions, count, size);
  else if (!strcmp(mode, "consume")) consume(client, topic, partitions, count, size);
  else if (!strcmp(mode, "txns")) commit_often(client, topic, partitions, count, size, atoll(argv[8]));
  else {
    char *nagle[] = {"socket.nagle.disable=true"};
    rk *reader = connect_client(CONSUMER, bootstrap, 1, nagle);
    schedule s = {client, topic, partitions, count, atoll(argv[8]), size};
    latency(&s, reader, ready_topic(reader, name));
  }
  fflush(stdout);
  /* A graceful close of the client takes seconds and is not part of the benchmark. */
  _Exit(0);
}
