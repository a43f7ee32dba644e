/* A load generator and bare workers which cost less than the router between them.
 *
 *     load serve PORT...                   answer as a vLLM server would, at once or as a stream
 *     load run PORT CONNECTIONS SECONDS FILE [PACE]
 *
 * One thread, epoll, nothing allocated per request, so that what is measured is the router. `run`
 * keeps one request in flight on each connection, takes the requests in FILE in turn, and makes
 * each one unique: the digits after MARK are its number. It prints one line of JSON. Every answer
 * must be a 200 of the length (or the chunks) it says, or it is counted as an error.
 *
 * A request with `"stream":true` gets EVENTS server-sent events, one each EVENT_US, each written
 * on its own; `run` spreads the start of its connections over PACE seconds, so that the streams of
 * many connections do not step together.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MARK "#no:"
#define DIGITS 10
#define EVENTS 100
#define EVENT_US 30000
#define MAX_FDS 8192
#define MAX_SAMPLES (1 << 22)
#define BUFFER (1 << 20)

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void watch(int epoll, int fd, int what) {
  struct epoll_event e = {.events = what, .data.fd = fd};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
}

static void set_options(int fd) {
  int one = 1, size = 400000; /* a long prompt, so that sending it hardly waits */
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* All of it: answers are small and requests fit the socket's buffer, so waiting is rare. */
static int write_all(int fd, const char *data, size_t size) {
  while (size) {
    ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n > 0) {
      data += n, size -= n;
    } else if (errno == EAGAIN) {
      struct timespec t = {.tv_nsec = 20000};
      nanosleep(&t, NULL);
    } else {
      return -1;
    }
  }
  return 0;
}

/* The value of Content-Length in a head, or -1. Compared without case: peers rewrite names. */
static long content_length(const char *head, const char *end) {
  static const char name[] = "\r\ncontent-length:";
  for (const char *p = head; p + sizeof name < end; p++)
    if (*p == '\r' && !strncasecmp(p, name, sizeof name - 1)) return atol(p + sizeof name - 1);
  return -1;
}

/* ---- workers ---- */

struct served {
  char *buffer;
  size_t have;
  int events_left;
  int64_t due;
};

static struct served served[MAX_FDS];
static char *ids_answer[128]; /* by prompt length, in steps of 4 KB: as vLLM's render answers */
static size_t ids_size[128];

static const char *plain(const char *status, const char *body, size_t *size) {
  static char out[4096];
  *size = snprintf(out, sizeof out,
                   "HTTP/1.1 %s\r\ndate: Sat, 21 Nov 2026 07:00:00 GMT\r\nserver: uvicorn\r\n"
                   "content-length: %zu\r\ncontent-type: application/json\r\n\r\n%s",
                   status, strlen(body), body);
  return out;
}

static const char CHAT[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":"
    "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"It stays warm, and what stays "
    "warm is found again by whoever asks the same, a little later, at the same place.\"},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":24,"
    "\"total_tokens\":1024,\"prompt_tokens_details\":{\"cached_tokens\":768}}}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":1,\"owned_by\":"
    "\"vllm\",\"root\":\"m\",\"max_model_len\":131072}]}";
static const char STREAM[] =
    "HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 07:00:00 GMT\r\nserver: uvicorn\r\n"
    "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,"
    "\"finish_reason\":null}]}\n\n";
static const char LAST[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/* vLLM's answer to .../render: the prompt's token ids, one for four bytes of it. The first ids
 * depend on the prompt's group, so that a router which keys on them tells groups apart. */
static void answer_render(int fd, const char *body, size_t length) {
  size_t step = length / 4096;
  if (step > 127) step = 127;
  if (!ids_answer[step]) {
    size_t count = (step ? step : 1) * 1024, at;
    char *text = malloc(count * 7 + 512), *list = malloc(count * 7);
    at = 0;
    for (size_t i = 0; i < count; i++)
      at += sprintf(list + at, "%s%d", i ? "," : "", 10000 + (int)(i * 7919 % 89000));
    int n = sprintf(text,
                    "{\"request_id\":\"r\",\"token_ids\":[%s],\"sampling_params\":{\"temperature\":0},"
                    "\"model\":\"m\",\"stream\":false}",
                    list);
    char *out = malloc(n + 256);
    int head = sprintf(out,
                       "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
                       "content-length: %d\r\n\r\n",
                       n);
    memcpy(out + head, text, n);
    ids_answer[step] = out, ids_size[step] = head + n;
    free(text), free(list);
  }
  char *first = memmem(ids_answer[step], ids_size[step], "[", 1);
  const char *group = memmem(body, length, "group ", 6);
  char digits[16];
  snprintf(digits, sizeof digits, "%05u", 10000u + (group ? (unsigned)atoi(group + 6) : 0) % 1000);
  memcpy(first + 1, digits, 5);
  write_all(fd, ids_answer[step], ids_size[step]);
}

static void answer(int fd, const char *head, const char *body, size_t length) {
  const char *path = strchr(head, ' ') + 1, *out;
  size_t path_size = strcspn(path, " ?"), size;
#define IS(name) (path_size == sizeof name - 1 && !memcmp(path, name, path_size))
  if (IS("/v1/chat/completions")) {
    /* At either end of the body: clients write it last, peers sort it first or keep it. */
    size_t edge = length < 1024 ? length : 1024;
    if (memmem(body, edge, "\"stream\":true", 13) ||
        memmem(body + length - edge, edge, "\"stream\":true", 13)) {
      write_all(fd, STREAM, sizeof STREAM - 1);
      served[fd].events_left = EVENTS;
      served[fd].due = now_us() + EVENT_US;
      return;
    }
    out = plain("200 OK", CHAT, &size);
  } else if (IS("/v1/chat/completions/render")) {
    answer_render(fd, body, length);
    return;
  } else if (IS("/health")) {
    out = plain("200 OK", "", &size);
  } else if (IS("/v1/models")) {
    out = plain("200 OK", MODELS, &size);
  } else if (IS("/version")) {
    out = plain("200 OK", "{\"version\":\"0.32.0\"}", &size);
  } else {
    out = plain("404 Not Found", "{\"detail\":\"Not Found\"}", &size);
  }
  write_all(fd, out, size);
}

/* Answer every whole request in the buffer; -1 when the connection is of no more use. */
static int feed(int fd) {
  struct served *s = &served[fd];
  for (;;) {
    char *end = s->have ? memmem(s->buffer, s->have, "\r\n\r\n", 4) : NULL;
    if (!end) return 0;
    long length = content_length(s->buffer, end + 4);
    size_t whole = end + 4 - s->buffer + (length > 0 ? length : 0);
    if (whole > BUFFER) return -1;
    if (s->have < whole) return 0;
    answer(fd, s->buffer, end + 4, length > 0 ? length : 0);
    memmove(s->buffer, s->buffer + whole, s->have - whole);
    s->have -= whole;
  }
}

static void stream_events(int most) {
  static char chunk[512];
  static int size;
  if (!size)
    size = sprintf(chunk, "%zx\r\n%s\r\n", sizeof EVENT - 1, EVENT);
  int64_t now = now_us();
  for (int fd = 0; fd <= most; fd++) {
    struct served *s = &served[fd];
    if (!s->events_left || now < s->due) continue;
    s->due += EVENT_US;
    if (write_all(fd, chunk, size) < 0) s->events_left = 1;
    if (--s->events_left == 0) write_all(fd, LAST, sizeof LAST - 1);
  }
}

static void serve(int count, char **ports) {
  int epoll = epoll_create1(0), most = 0, listening[16];
  for (int i = 0; i < count; i++) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(ports[i]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0) die("listen");
    listening[i] = fd;
    watch(epoll, fd, EPOLLIN);
  }
  for (;;) {
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, 1);
    for (int i = 0; i < n; i++) {
      int fd = events[i].data.fd, is_new = 0;
      for (int j = 0; j < count; j++) is_new |= fd == listening[j];
      if (is_new) {
        int got = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        if (got < 0 || got >= MAX_FDS) continue;
        set_options(got);
        if (!served[got].buffer) served[got].buffer = malloc(BUFFER + 1);
        served[got].have = 0, served[got].events_left = 0;
        if (got > most) most = got;
        watch(epoll, got, EPOLLIN);
        continue;
      }
      struct served *s = &served[fd];
      ssize_t got = recv(fd, s->buffer + s->have, BUFFER - s->have, 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got > 0) s->have += got, s->buffer[s->have] = 0;
      if (got <= 0 || feed(fd) < 0) s->events_left = 0, close(fd);
    }
    stream_events(most);
  }
}

/* ---- clients ---- */

struct wire {
  char *data;
  size_t size, mark;
};

struct client {
  int fd;
  char *buffer;
  size_t have;
  int64_t sent;
};

static struct wire *wires;
static size_t wire_count;
static uint64_t number;
static uint32_t *samples;
static size_t sampled, errors;

static void read_wires(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) die(path);
  uint32_t size;
  while (fread(&size, 4, 1, file) == 1) {
    wires = realloc(wires, (wire_count + 1) * sizeof *wires);
    struct wire *w = &wires[wire_count++];
    w->data = malloc(size);
    w->size = size;
    if (fread(w->data, 1, size, file) != size) die(path);
    char *mark = memmem(w->data, size, MARK, sizeof MARK - 1);
    w->mark = mark ? (size_t)(mark - w->data) + sizeof MARK - 1 : 0;
  }
  fclose(file);
}

static void send_next(struct client *c) {
  struct wire *w = &wires[number * 7 % wire_count];
  number++;
  if (w->mark) {
    uint64_t left = number;
    for (int i = DIGITS - 1; i >= 0; i--, left /= 10) w->data[w->mark + i] = '0' + left % 10;
  }
  c->have = 0;
  c->sent = now_us();
  if (write_all(c->fd, w->data, w->size) < 0) errors++;
}

/* Is the answer whole? A stream's end is looked for only in its last bytes. */
static int complete(struct client *c) {
  char *end = memmem(c->buffer, c->have, "\r\n\r\n", 4);
  if (!end) return 0;
  long length = content_length(c->buffer, end + 4);
  if (length >= 0) return c->have >= (size_t)(end + 4 - c->buffer) + length;
  return c->have > 5 && !memcmp(c->buffer + c->have - 5, "0\r\n\r\n", 5);
}

static void open_client(struct client *c, int epoll, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&at, sizeof at) < 0) die("connect");
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  set_options(c->fd);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static int ascending(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static int run(int port, int connections, double seconds, const char *path, double pace) {
  read_wires(path);
  samples = malloc(MAX_SAMPLES * sizeof *samples);
  struct client *clients = calloc(connections, sizeof *clients);
  int epoll = epoll_create1(0), opened = 0, busy = 0;
  int64_t start = now_us(), until = start + (int64_t)(seconds * 1e6), now = start;
  while (now < until || busy) {
    while (opened < connections && now - start >= pace * 1e6 * opened / connections) {
      struct client *c = &clients[opened++];
      c->buffer = malloc(BUFFER);
      open_client(c, epoll, port);
      send_next(c), busy++;
    }
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, opened < connections ? 1 : 100);
    for (int i = 0; i < n; i++) {
      struct client *c = events[i].data.ptr;
      ssize_t got = recv(c->fd, c->buffer + c->have, BUFFER - c->have, 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) {
        errors++, busy--;
        close(c->fd);
        continue;
      }
      c->have += got;
      if (!complete(c)) continue;
      now = now_us();
      if (memcmp(c->buffer, "HTTP/1.1 200", 12)) errors++;
      if (sampled < MAX_SAMPLES) samples[sampled++] = now - c->sent;
      if (now < until) send_next(c);
      else busy--;
    }
    now = now_us();
  }
  double took = (now - start) / 1e6;
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
               (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  qsort(samples, sampled, sizeof *samples, ascending);
  size_t last = sampled ? sampled - 1 : 0;
  printf("{\"answers\":%zu,\"errors\":%zu,\"seconds\":%.4f,\"cpu_s\":%.4f,\"p50_us\":%u,"
         "\"p99_us\":%u}\n",
         sampled, errors, took, cpu, sampled ? samples[sampled / 2] : 0,
         sampled ? samples[(size_t)(last * 0.99)] : 0);
  return errors != 0;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc > 2 && !strcmp(argv[1], "serve")) serve(argc - 2, argv + 2);
  if (argc > 5 && !strcmp(argv[1], "run"))
    return run(atoi(argv[2]), atoi(argv[3]), atof(argv[4]), argv[5], argc > 6 ? atof(argv[6]) : 0);
  fprintf(stderr, "usage: load serve PORT... | load run PORT CONNECTIONS SECONDS FILE [PACE]\n");
  return 2;
}
