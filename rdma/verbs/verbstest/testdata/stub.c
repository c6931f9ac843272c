// A libibverbs whose only device connects queue pairs of one process, and fails as a test asks. A write is a memcpy
// during ibv_post_send; one that finds no receive waits for it. Types have the layout of infiniband/verbs.h.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct context; struct cq; struct qp;
struct device { void *ops[2]; int node_type, transport; char name[64], dev_name[64], dev_path[256], ibdev_path[256]; };
struct sge { uint64_t addr; uint32_t length, lkey; };
struct send_wr {
  uint64_t wr_id; struct send_wr *next; struct sge *sg; int num_sge; uint32_t opcode, flags, imm;
  uint64_t remote_addr; uint32_t rkey; char rest[76];
};
struct recv_wr { uint64_t wr_id; struct recv_wr *next; struct sge *sg; int num_sge; };
struct wc { uint64_t wr_id; uint32_t status, opcode, vendor, byte_len, imm, qp_num, src_qp, flags; uint16_t a, b; uint8_t c, d; };
struct ops {
  void *before[11];
  int (*poll_cq)(struct cq *, int, struct wc *);
  int (*req_notify_cq)(struct cq *, int);
  void *between[12];
  int (*post_send)(struct qp *, struct send_wr *, struct send_wr **);
  int (*post_recv)(struct qp *, struct recv_wr *, struct recv_wr **);
  void *after[5];
};
struct context { struct device *device; struct ops ops; int cmd_fd, async_fd; };
struct pd { struct context *context; };
struct channel { struct context *context; int fd, refcnt; struct cq *cq; };
#define DEPTH 1024
struct cq { struct context *context; struct channel *channel; int armed, events, acked, first, count; struct wc wc[DEPTH]; };
struct mr { struct context *context; struct pd *pd; void *addr; uint64_t length; uint32_t handle, lkey, rkey; int access; struct mr *next; };
struct init_attr { void *context; struct cq *send_cq, *recv_cq; void *srq; uint32_t cap[5], type; int all; };
struct ah { uint8_t gid[16]; uint32_t flow; uint8_t index, hops, class, pad; uint16_t dlid; uint8_t sl, bits, rate, global, port, pad2; };
struct attr {
  uint32_t state, cur, mtu, mig, qkey, rq_psn, sq_psn, dest, access, cap[5]; struct ah ah, alt;
  uint16_t pkey[2]; uint8_t sqd[2], rd, dest_rd, timer, port, timeout, retry, rnr, alt_port[2]; uint32_t rate;
};
struct waiting { struct send_wr wr; struct sge sge; char data[256]; };
struct qp {
  struct context *context; void *qp_context; struct pd *pd; struct cq *send_cq, *recv_cq; void *srq;
  uint32_t handle, qp_num; // what the caller knows of it
  uint32_t state, dest, rq_psn, sq_psn, sends, receives, max_sends;
  struct waiting wait[DEPTH]; int first, count; // sends that the peer is not ready for, or that are stalled
  struct qp *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct qp *qps; static struct mr *mrs; static uint32_t number = 16;
static int objects, registrations, stalled, next_status; // of the test
static char fails[64]; static int fails_errno;
static int down;
static int listed = 1, transport; static uint32_t max_message = 1 << 30;

int stub_objects(void) { return objects; }
int stub_registrations(void) { return registrations; }
void stub_fail(const char *function, int error) { snprintf(fails, sizeof fails, "%s", function); fails_errno = error; }
void stub_status(int status) { next_status = status; } // of the next write
void stub_devices(int n, int iwarp) { listed = n; transport = iwarp; }
void stub_port_down(int on) { down = on; }
void stub_max_message(uint32_t n) { max_message = n; }

static int failing(const char *function) { return strcmp(function, fails) == 0 ? (errno = fails_errno) : 0; }

struct device **ibv_get_device_list(int *n) {
  if (failing("ibv_get_device_list")) return NULL;
  struct device **list = calloc(8, sizeof *list);
  int there = listed < 0 ? 0 : listed; // -1: one is counted that is not there
  for (int i = 0; i < there; i++) {
    list[i] = calloc(1, sizeof **list);
    list[i]->transport = transport;
    snprintf(list[i]->name, 64, "stub_%d", i); snprintf(list[i]->dev_name, 64, "uverbs%d", i);
  }
  *n = listed < 0 ? 1 : listed;
  return list;
}
void ibv_free_device_list(struct device **list) { // an open device remains, as that of libibverbs
  free(list);
}

static void complete(struct cq *cq, struct wc wc) {
  if (cq->count == DEPTH) abort(); // an overrun
  cq->wc[(cq->first + cq->count++) % DEPTH] = wc;
  if (cq->armed) { uint64_t one = 1; cq->armed = 0; cq->events++; if (write(cq->channel->fd, &one, 8) != 8) abort(); }
}

static struct mr *region(struct pd *pd, uint32_t key, uint64_t addr, uint64_t length) {
  for (struct mr *m = mrs; m; m = m->next)
    if (m->rkey == key && m->pd == pd && addr >= (uint64_t)m->addr && addr + length <= (uint64_t)m->addr + m->length) return m;
  return NULL;
}

static void to_error(struct qp *qp) { // what is outstanding is flushed
  if (qp->state == 6) return;
  qp->state = 6;
  for (; qp->count; qp->count--, qp->sends--, qp->first = (qp->first + 1) % DEPTH)
    complete(qp->send_cq, (struct wc){.wr_id = qp->wait[qp->first].wr.wr_id, .status = 5});
  for (; qp->receives; qp->receives--) complete(qp->recv_cq, (struct wc){.status = 5, .opcode = 128});
}

static struct qp *destination(struct qp *qp) {
  for (struct qp *d = qps; d; d = d->next) if (d->qp_num == qp->dest && d->dest == qp->qp_num && d->state != 6) return d;
  return NULL;
}

// deliver executes the writes that can be.
static void deliver(struct qp *qp) {
  while (qp->count && qp->state == 3 && !stalled) {
    struct waiting *w = &qp->wait[qp->first];
    struct qp *to = destination(qp);
    int status = next_status;
    struct mr *from = NULL;
    if (!to && !status) status = 12; // as after all retries
    if (w->sge.length && !(w->wr.flags & 8) && !(from = region(qp->pd, w->sge.lkey, w->sge.addr, w->sge.length))) status = 4;
    if (!status && w->sge.length) {
      struct mr *into = region(to->pd, w->wr.rkey, w->wr.remote_addr, w->sge.length);
      if (!into || !(into->access & 2)) { status = 10; }
    }
    if (!status && w->wr.opcode == 1 && !to->receives) return; // the receiver is not ready
    qp->first = (qp->first + 1) % DEPTH; qp->count--; qp->sends--; next_status = 0;
    if (status) {
      complete(qp->send_cq, (struct wc){.wr_id = w->wr.wr_id, .status = status});
      to_error(qp);
      if (status == 10) to_error(to);
      return;
    }
    if (w->sge.length) memcpy((void *)w->wr.remote_addr, w->wr.flags & 8 ? w->data : (char *)w->sge.addr, w->sge.length);
    if (w->wr.opcode == 1) {
      to->receives--;
      complete(to->recv_cq, (struct wc){.opcode = 129, .byte_len = w->sge.length, .imm = w->wr.imm, .flags = 2});
    }
    if (w->wr.flags & 2) complete(qp->send_cq, (struct wc){.wr_id = w->wr.wr_id, .opcode = 1});
  }
}

// stub_stall keeps writes from being executed, as if the peer were gone.
void stub_stall(int on) {
  pthread_mutex_lock(&lock);
  stalled = on;
  for (struct qp *q = qps; q; q = q->next) deliver(q);
  pthread_mutex_unlock(&lock);
}

static int post_send(struct qp *qp, struct send_wr *wr, struct send_wr **bad) {
  int error = 0;
  pthread_mutex_lock(&lock);
  for (; wr && !error; wr = wr->next) {
    *bad = wr;
    if (failing("ibv_post_send")) { error = fails_errno; break; }
    if (qp->state < 3 || wr->num_sge > 1 || (wr->num_sge && wr->flags & 8 && wr->sg->length > sizeof qp->wait->data)) { error = EINVAL; break; }
    if (qp->state == 6) { complete(qp->send_cq, (struct wc){.wr_id = wr->wr_id, .status = 5}); continue; }
    if (qp->sends == qp->max_sends) { error = ENOMEM; break; }
    struct waiting *w = &qp->wait[(qp->first + qp->count) % DEPTH];
    w->wr = *wr;
    w->sge = wr->num_sge ? *wr->sg : (struct sge){0};
    if (max_message && w->sge.length > max_message) { error = EINVAL; break; }
    if (wr->flags & 8) memcpy(w->data, (void *)w->sge.addr, w->sge.length);
    qp->count++; qp->sends++;
  }
  deliver(qp);
  pthread_mutex_unlock(&lock);
  return error;
}

static int post_recv(struct qp *qp, struct recv_wr *wr, struct recv_wr **bad) {
  pthread_mutex_lock(&lock);
  for (; wr; wr = wr->next) {
    if (qp->state == 6) complete(qp->recv_cq, (struct wc){.wr_id = wr->wr_id, .status = 5, .opcode = 128});
    else qp->receives++;
  }
  for (struct qp *q = qps; q; q = q->next) if (destination(q) == qp) deliver(q);
  pthread_mutex_unlock(&lock);
  return 0;
}

static int poll_cq(struct cq *cq, int n, struct wc *wc) {
  int got = 0;
  pthread_mutex_lock(&lock);
  for (; got < n && cq->count; cq->count--, cq->first = (cq->first + 1) % DEPTH) wc[got++] = cq->wc[cq->first];
  pthread_mutex_unlock(&lock);
  return failing("ibv_poll_cq") ? -1 : got;
}

static int req_notify_cq(struct cq *cq, int solicited) {
  pthread_mutex_lock(&lock);
  cq->armed = 1;
  pthread_mutex_unlock(&lock);
  return 0;
}

#define MAKE(name, variable, size) \
  if (failing(name)) return NULL; \
  variable = calloc(1, size); \
  pthread_mutex_lock(&lock); objects++; pthread_mutex_unlock(&lock);
static int destroy(void *object) {
  pthread_mutex_lock(&lock); objects--; pthread_mutex_unlock(&lock);
  free(object);
  return 0;
}

struct context *ibv_open_device(struct device *device) {
  struct context *c;
  MAKE("ibv_open_device", c, sizeof *c)
  c->device = device;
  c->ops.poll_cq = poll_cq; c->ops.req_notify_cq = req_notify_cq; c->ops.post_send = post_send; c->ops.post_recv = post_recv;
  return c;
}
int ibv_close_device(struct context *c) { return destroy(c); }
int ibv_query_port(struct context *c, uint8_t port, uint32_t *attr) {
  memset(attr, 0, 48);
  if (port != 1) return EINVAL;
  attr[0] = down ? 1 : 4; attr[2] = 3; attr[3] = 3; attr[5] = max_message; ((uint8_t *)attr)[46] = 2;
  return failing("ibv_query_port");
}
int ibv_query_gid(struct context *c, uint8_t port, int index, uint8_t *gid) {
  static const uint8_t local[16] = {0xfe, 0x80, [15] = 1}, v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
  memset(gid, 0, 16);
  if (index < 2) memcpy(gid, index ? v4 : local, 16);
  return failing("ibv_query_gid");
}
const char *ibv_wc_status_str(int status) {
  switch (status) { case 5: return "Work Request Flushed Error"; case 10: return "remote access error"; case 12: return "transport retry counter exceeded"; }
  return "another error";
}

struct pd *ibv_alloc_pd(struct context *c) { struct pd *p; MAKE("ibv_alloc_pd", p, sizeof *p) p->context = c; return p; }
int ibv_dealloc_pd(struct pd *p) {
  for (struct mr *m = mrs; m; m = m->next) if (m->pd == p) return EBUSY;
  return destroy(p);
}

struct mr *ibv_reg_mr(struct pd *pd, void *addr, size_t length, int access) {
  struct mr *m;
  MAKE("ibv_reg_mr", m, sizeof *m)
  pthread_mutex_lock(&lock);
  registrations++;
  m->pd = pd; m->addr = addr; m->length = length; m->access = access; m->lkey = m->rkey = ++number; m->next = mrs; mrs = m;
  pthread_mutex_unlock(&lock);
  return m;
}
int ibv_dereg_mr(struct mr *mr) {
  pthread_mutex_lock(&lock);
  registrations--;
  for (struct mr **m = &mrs; *m; m = &(*m)->next) if (*m == mr) { *m = mr->next; break; }
  pthread_mutex_unlock(&lock);
  return destroy(mr);
}

struct channel *ibv_create_comp_channel(struct context *c) {
  struct channel *ch;
  MAKE("ibv_create_comp_channel", ch, sizeof *ch)
  ch->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return ch;
}
int ibv_destroy_comp_channel(struct channel *ch) { close(ch->fd); return destroy(ch); }

struct cq *ibv_create_cq(struct context *c, int n, void *context, struct channel *ch, int vector) {
  struct cq *cq;
  MAKE("ibv_create_cq", cq, sizeof *cq)
  cq->context = c; cq->channel = ch; ch->cq = cq;
  return cq;
}
int ibv_get_cq_event(struct channel *ch, struct cq **cq, void **context) {
  uint64_t one;
  if (failing("ibv_get_cq_event")) return -1;
  if (read(ch->fd, &one, 8) != 8) return -1;
  *cq = ch->cq; *context = NULL;
  return 0;
}
void ibv_ack_cq_events(struct cq *cq, unsigned n) { pthread_mutex_lock(&lock); cq->acked += n; pthread_mutex_unlock(&lock); }
int ibv_destroy_cq(struct cq *cq) {
  uint64_t one; // events that were not fetched are dropped, as libibverbs does
  while (read(cq->channel->fd, &one, 8) == 8) cq->events--;
  if (cq->events != cq->acked) { fprintf(stderr, "stub: %d events, %d acknowledged\n", cq->events, cq->acked); return EBUSY; } // libibverbs waits for ever
  return destroy(cq);
}

struct qp *ibv_create_qp(struct pd *pd, struct init_attr *init) {
  struct qp *qp;
  if (failing("inline") && init->cap[4]) return NULL;
  MAKE("ibv_create_qp", qp, sizeof *qp)
  pthread_mutex_lock(&lock);
  qp->pd = pd; qp->send_cq = init->send_cq; qp->recv_cq = init->recv_cq; qp->max_sends = init->cap[0];
  qp->qp_num = ++number; qp->next = qps; qps = qp;
  pthread_mutex_unlock(&lock);
  return qp;
}
int ibv_modify_qp(struct qp *qp, struct attr *attr, int mask) {
  if (failing("ibv_modify_qp")) return fails_errno;
  int error = 0;
  pthread_mutex_lock(&lock);
  if (attr->state == 6) {
    to_error(qp);
    for (struct qp *q = qps; q; q = q->next) if (q->dest == qp->qp_num) deliver(q);
  } else if (attr->state != qp->state + 1) error = EINVAL;
  else {
    if (attr->state == 2) {
      if (failing("rtr")) error = fails_errno;
      qp->dest = attr->dest; qp->rq_psn = attr->rq_psn;
    }
    if (attr->state == 3) { // a peer that starts at another number would drop every packet
      struct qp *to = destination(qp);
      qp->sq_psn = attr->sq_psn;
      if (to && to->rq_psn != qp->sq_psn) error = EINVAL;
    }
    if (!error) qp->state = attr->state;
  }
  pthread_mutex_unlock(&lock);
  return error;
}
int ibv_destroy_qp(struct qp *qp) {
  pthread_mutex_lock(&lock);
  for (struct qp **q = &qps; *q; q = &(*q)->next) if (*q == qp) { *q = qp->next; break; }
  for (struct qp *q = qps; q; q = q->next) if (q->dest == qp->qp_num) deliver(q);
  pthread_mutex_unlock(&lock);
  return destroy(qp);
}
