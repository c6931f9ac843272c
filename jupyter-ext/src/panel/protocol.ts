/**
 * The messages of tfcluster.v1 that the panel reads. Their other side is magics/panel; testdata/panel.json has examples that
 * the tests of both sides read. A kernel's message is data: each field is read by its type, and what is missing has a default.
 */

export interface Listed {
  name: string;
  backend: string;
  live: boolean;
  current: boolean;
  note: string;
}

export type Tone = "good" | "bad" | "busy" | "";

/** What a task and its executor's GPUs use, by the names in message Usage of cluster.proto. */
export type Usage = Partial<Record<string, number>>;

export interface Executor {
  task: string;
  host: string;
  state: string;
  tone: Tone;
  why: string;
  /** Seconds since the last heartbeat, if it is late. */
  silent: number;
  step: number;
  /** Steps per second; 0: not known. */
  rate: number;
  /** The last one; null: the task reports none. */
  loss: number | null;
  behind: number;
  /** Of a straggler: the time of its step on its own, divided by the median of the tasks. */
  slowdown: number;
  restarts: number;
  /** The task's process exists. */
  runs: boolean;
  gpus: number;
  usage: Usage;
}

export interface Run {
  id: number;
  state: string;
  active: boolean;
  program: string;
  /** Unix time in seconds. */
  started: number;
  seconds: number;
  progress: string;
  /** Which tasks hold the run up. */
  stall: string;
  /** Of the steps that are done, 0 to 1; -1: unknown. */
  share: number;
  metrics: [string, number][];
  failure: string;
  /** The task that failed first, and its last lines on standard error. */
  task: string;
  lines: string[];
}

export interface Cluster {
  name: string;
  backend: string;
  words: string;
  allocation: string;
  dir: string;
  since: number;
  waiting: string;
  notes: { text: string; warning: boolean }[];
  executors: Executor[];
  /** Executors in order that are not listed. */
  hidden: number;
  run: Run | null;
}

export interface State {
  sequence: number;
  clusters: Listed[];
  cluster: Cluster | null;
  problem: string;
}

/** A line of a task, by the comm or the WebSocket: LineJSON in cluster/clusterpb. */
export interface Line {
  task: string;
  number: number;
  /** Unix time in milliseconds. */
  time: number;
  error: boolean;
  text: string;
}

export interface Lines {
  run: number;
  lines: Line[];
  skipped: number;
  gap: string;
  over: boolean;
}

export interface Curve {
  name: string;
  steps: number[];
  values: number[];
}

export interface PastRun extends Run {
  series: Curve[];
}

export interface Samples {
  task: string;
  /** Unix time in milliseconds. */
  times: number[];
  /** By the names in message Usage, as many as times. What no sample has is absent. */
  usage: Map<string, number[]>;
}

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null;
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const count = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
const flag = (value: unknown): boolean => value === true;
const list = <T>(value: unknown, read: (item: Fields) => T): T[] =>
  Array.isArray(value) ? value.filter(isFields).map(read) : [];
const fields = (value: unknown): [string, unknown][] => (isFields(value) ? Object.entries(value) : []);
const counts = (value: unknown): number[] => (Array.isArray(value) ? value.map(count) : []);

function tone(value: unknown): Tone {
  return value === "good" || value === "bad" || value === "busy" ? value : "";
}

/** Reads the type and the request's number of a message; nothing where it is no message. */
export function readEnvelope(data: unknown): { type: string; request: number; fields: Fields } | undefined {
  return isFields(data) && typeof data.type === "string"
    ? { type: data.type, request: count(data.request), fields: data }
    : undefined;
}

export function readState(data: Fields): State {
  return {
    sequence: count(data.sequence),
    clusters: list(data.clusters, (c) => ({
      name: text(c.name),
      backend: text(c.backend),
      live: flag(c.live),
      current: flag(c.current),
      note: text(c.note),
    })),
    cluster: isFields(data.cluster) ? readCluster(data.cluster) : null,
    problem: text(data.problem),
  };
}

function readCluster(c: Fields): Cluster {
  return {
    name: text(c.name),
    backend: text(c.backend),
    words: text(c.words),
    allocation: text(c.allocation),
    dir: text(c.dir),
    since: count(c.since),
    waiting: text(c.waiting),
    notes: list(c.notes, (n) => ({ text: text(n.text), warning: flag(n.warning) })),
    executors: list(c.executors, readExecutor),
    hidden: count(c.hidden),
    run: isFields(c.run) ? readRun(c.run) : null,
  };
}

function readExecutor(e: Fields): Executor {
  return {
    task: text(e.task),
    host: text(e.host),
    state: text(e.state),
    tone: tone(e.tone),
    why: text(e.why),
    silent: count(e.silent),
    step: count(e.step),
    rate: count(e.rate),
    loss: typeof e.loss === "number" ? e.loss : null,
    behind: count(e.behind),
    slowdown: count(e.slowdown),
    restarts: count(e.restarts),
    runs: flag(e.runs),
    gpus: count(e.gpus),
    usage: Object.fromEntries(fields(e.usage).map(([name, value]) => [name, count(value)])),
  };
}

function readRun(r: Fields): Run {
  return {
    id: count(r.id),
    state: text(r.state),
    active: flag(r.active),
    program: text(r.program),
    started: count(r.started),
    seconds: count(r.seconds),
    progress: text(r.progress),
    stall: text(r.stall),
    share: typeof r.share === "number" ? r.share : -1,
    metrics: fields(r.metrics)
      .map(([name, value]): [string, number] => [name, count(value)])
      .sort(),
    failure: text(r.failure),
    task: text(r.task),
    lines: Array.isArray(r.lines) ? r.lines.map(text) : [],
  };
}

export function readRuns(data: Fields): PastRun[] {
  return list(data.runs, (r) => ({
    ...readRun(r),
    series: list(r.series, (s) => ({ name: text(s.name), steps: counts(s.steps), values: counts(s.values) })),
  }));
}

export function readLines(data: Fields): Lines {
  return {
    run: count(data.run),
    lines: list(data.lines, (l) => ({
      task: text(l.task),
      number: count(l.number),
      time: count(l.time),
      error: flag(l.error),
      text: text(l.text),
    })),
    skipped: count(data.skipped),
    gap: text(data.gap),
    over: flag(data.over),
  };
}

export function readSamples(data: Fields): Samples[] {
  return list(data.tasks, (t) => ({
    task: text(t.task),
    times: counts(t.times),
    usage: new Map(fields(t.usage).map(([name, values]) => [name, counts(values)])),
  }));
}

/** The text of an answer's field, such as its path. */
export const readText = (data: Fields, field: string): string => text(data[field]);
