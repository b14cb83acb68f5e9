/* Sends one prepared request repeatedly on several connections, and counts the replies.
 *
 * Client libraries do not allow heartbeats and offset commits as fast as a broker
 * handles them. Frames and expected replies come from the caller, so this is independent of
 * Kafka; as all frames of a connection are equal, so are all replies, byte for byte.
 *
 *   pipe HOST PORT CONNECTIONS COUNT WINDOW < prepared
 *
 * COUNT requests in all, WINDOW of them in flight on each connection. `prepared` has, for each
 * connection, a request and its reply, each with its length in 4 bytes (big endian),
 * which is Kafka's frame. Prints one line of JSON; exits with 1 and a message on stderr if a
 * reply differs or is missing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, FRAME_MAX = 1 << 20, READ_BYTES = 1 << 16, STALL_MS = 60000 };

typedef struct {
  char *bytes;
  size_t len;
} frame;

typedef struct {
  int fd;
  frame burst; /* WINDOW requests, one after the other */
  size_t request_len;
  frame answer;
  int64_t count, asked, answered;
  size_t to_send; /* bytes due but not accepted by the socket yet */
  size_t sent_at; /* position of the next byte to send in the burst */
  size_t got_at;  /* bytes received of the next reply */
} line;

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static frame read_frame(void) {
  unsigned char head[4];
  if (fread(head, 1, 4, stdin) != 4) die("prepared", "too few frames");
  size_t len = ((size_t)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3]) + 4;
  if (len > FRAME_MAX) die("prepared", "a frame is too long");
  frame f = {malloc(len), len};
  memcpy(f.bytes, head, 4);
  if (fread(f.bytes + 4, 1, len - 4, stdin) != len - 4) die("prepared", "a frame is cut short");
  return f;
}

static int dial(const char *host, int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, host, &to.sin_addr) != 1) die("not an IPv4 address", host);
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect", strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void allow(line *l, int64_t requests) {
  if (requests > l->count - l->asked) requests = l->count - l->asked;
  l->asked += requests;
  l->to_send += (size_t)requests * l->request_len;
}

/* Sends due bytes, as far as the socket accepts them. */
static void push(line *l) {
  while (l->to_send) {
    size_t part = l->burst.len - l->sent_at;
    if (part > l->to_send) part = l->to_send;
    ssize_t n = send(l->fd, l->burst.bytes + l->sent_at, part, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN) return;
      die("send", strerror(errno));
    }
    l->to_send -= (size_t)n;
    l->sent_at = (l->sent_at + (size_t)n) % l->burst.len;
  }
}

static void pull(line *l) {
  static char bytes[READ_BYTES];
  ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n == 0) die("recv", "the broker closed the connection");
  if (n < 0) {
    if (errno == EAGAIN) return;
    die("recv", strerror(errno));
  }
  int64_t whole = 0;
  for (char *at = bytes, *end = bytes + n; at < end;) {
    size_t part = l->answer.len - l->got_at;
    if (part > (size_t)(end - at)) part = (size_t)(end - at);
    if (memcmp(l->answer.bytes + l->got_at, at, part)) die("recv", "not the answer expected");
    at += part;
    l->got_at += part;
    if (l->got_at == l->answer.len) l->got_at = 0, whole++;
  }
  l->answered += whole;
  allow(l, whole);
}

int main(int argc, char **argv) {
  if (argc != 6) die("usage", "pipe HOST PORT CONNECTIONS COUNT WINDOW");
  int connections = atoi(argv[3]), window = atoi(argv[5]);
  int64_t count = atoll(argv[4]), left = count;
  if (connections < 1 || connections > CONNECTIONS_MAX || window < 1) die("usage", "out of range");
  line *lines = calloc((size_t)connections, sizeof *lines);
  struct pollfd *polled = calloc((size_t)connections, sizeof *polled);
  for (int i = 0; i < connections; i++) {
    line *l = &lines[i];
    frame request = read_frame();
    l->answer = read_frame();
    l->request_len = request.len;
    l->burst.len = request.len * (size_t)window;
    l->burst.bytes = malloc(l->burst.len);
    for (int w = 0; w < window; w++)
      memcpy(l->burst.bytes + (size_t)w * request.len, request.bytes, request.len);
    l->count = count / connections + (i < count % connections);
    l->fd = polled[i].fd = dial(argv[1], atoi(argv[2]));
  }
  double started = now_s();
  for (int i = 0; i < connections; i++) allow(&lines[i], window), push(&lines[i]);
  while (left > 0) {
    for (int i = 0; i < connections; i++) {
      polled[i].events = POLLIN | (lines[i].to_send ? POLLOUT : 0);
      if (lines[i].answered == lines[i].count) polled[i].fd = -1;
    }
    int ready = poll(polled, (nfds_t)connections, STALL_MS);
    if (ready == 0) die("poll", "no answer for 60 s");
    if (ready < 0) die("poll", strerror(errno));
    for (int i = 0; i < connections; i++) {
      if (polled[i].fd < 0 || !polled[i].revents) continue;
      int64_t before = lines[i].answered;
      if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) pull(&lines[i]);
      push(&lines[i]);
      left -= lines[i].answered - before;
    }
  }
  printf("{\"requests\": %ld, \"seconds\": %.6f}\n", (long)count, now_s() - started);
  return 0;
}
