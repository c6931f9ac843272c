import { Signal } from "@lumino/signaling";
import { Problem } from "../src/comm";
import { Connection, type PanelKernel } from "../src/panel/connection";
import { followLines, pattern } from "../src/panel/live";
import { readEnvelope, readLines, readRuns, readSamples, readState } from "../src/panel/protocol";
import golden from "../testdata/panel.json";
import { FakeComm } from "./fakes";

type Message = Record<string, unknown>;

/** A kernel whose comms record what they are sent. */
function fake(answer: (message: Message, comm: FakeComm) => void = () => undefined) {
  const sent: Message[] = [];
  const comms: FakeComm[] = [];
  const owner = {};
  const kernel = {
    id: "k",
    isDisposed: false,
    handleComms: true,
    status: "idle",
    statusChanged: new Signal<object, string>(owner),
    connectionStatusChanged: new Signal<object, string>(owner),
    createComm: (target: string) => {
      const comm = new FakeComm(target, (message) => {
        sent.push(message as Message);
        answer(message as Message, comm);
      });
      comms.push(comm);
      return comm;
    },
  };
  return { kernel, sent, comms, connection: new Connection(kernel as unknown as PanelKernel) };
}

const types = (sent: Message[]): unknown[] => sent.map((m) => m.type);

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

test("the kernel is asked only while somebody looks", () => {
  const { sent, comms, connection } = fake();
  expect(comms).toHaveLength(0);
  const viewers = [{}, {}];
  viewers.forEach((v) => {
    connection.retain(v);
  });
  jest.advanceTimersByTime(10_000);
  viewers.forEach((v) => {
    connection.release(v);
  });
  expect(types(sent)).toEqual(["show", "ping", "hide"]);
  expect(comms.map((c) => c.target)).toEqual(["tfcluster.v1"]);
});

test("a state is kept and announced", () => {
  const { comms, connection } = fake();
  const changed = jest.fn();
  connection.changed.connect(changed);
  connection.retain({});
  comms[0]?.reply({ type: "state", ...golden.training });
  expect(connection.state?.cluster?.run?.id).toBe(3);
  expect(changed).toHaveBeenCalled();
});

test("requests are matched by their numbers; errors and silence are problems", async () => {
  const { comms, connection } = fake();
  connection.retain({});
  const [first, second, third] = ["runs", "curves", "page"].map((type) => connection.request(type));
  comms[0]?.reply({ type: "curves", request: 2, runs: [] });
  comms[0]?.reply({ type: "error", request: 1, message: "the driver died" });
  await expect(first).rejects.toEqual(new Problem("the driver died"));
  await expect(second).resolves.toMatchObject({ runs: [] });
  jest.advanceTimersByTime(20_000);
  await expect(third).rejects.toThrow("does not answer");
});

test("a kernel without tfcluster is asked again only when a cell has run", () => {
  const { comms, connection } = fake();
  connection.retain({});
  comms[0]?.onClose();
  expect(connection.reach).toBe("none");
  jest.advanceTimersByTime(60_000);
  expect(comms).toHaveLength(1);
  connection.retry();
  expect(comms).toHaveLength(2);
});

test("a restarted kernel is asked again, and follows the same lines", async () => {
  const { kernel, sent, comms, connection } = fake();
  connection.retain({});
  const end = connection.follow({ run: 3 }, () => undefined);
  const lost = connection.request("runs");
  kernel.statusChanged.emit("restarting");
  await expect(lost).rejects.toThrow("restarts");
  kernel.statusChanged.emit("idle");
  expect(comms).toHaveLength(2);
  end();
  expect(types(sent)).toEqual(["show", "follow", "runs", "show", "follow", "unfollow"]);
});

test("after an interruption of the network a new comm has everything again", async () => {
  const { kernel, sent, comms, connection } = fake();
  connection.retain({});
  comms[0]?.reply({ type: "state", ...golden.training });
  connection.follow({ run: 3 }, () => undefined);
  const lost = connection.request("runs");
  kernel.connectionStatusChanged.emit("connecting");
  kernel.connectionStatusChanged.emit("connected");
  await expect(lost).rejects.toThrow("interrupted");
  expect(comms.map((c) => c.isDisposed)).toEqual([true, false]);
  expect(types(sent)).toEqual(["show", "follow", "runs", "show", "follow"]);
  expect(connection.state?.cluster?.run?.id).toBe(3); // shown until the new one comes
});

test("a dead kernel is not asked", async () => {
  const { kernel, connection } = fake();
  connection.retain({});
  kernel.statusChanged.emit("dead");
  expect(connection.reach).toBe("dead");
  await expect(connection.request("runs")).rejects.toThrow("not connected");
});

test.each([null, 1, "x", [], {}, { type: 1 }])("%j is no message", (data) => {
  expect(readEnvelope(data)).toBeUndefined();
});

test.each([
  {},
  { clusters: {}, cluster: [], problem: 1 },
  {
    cluster: {
      executors: [null, 1, { task: {}, usage: { cpu_percent: "9" } }, { usage: [1] }],
      notes: "x",
      run: { metrics: [1], lines: {} },
    },
  },
])("malformed data gives defaults: %j", (data) => {
  expect(() => [readState(data), readRuns(data), readLines(data), readSamples(data)]).not.toThrow();
});

test("examples of the kernel's side are read", () => {
  expect(
    readState(golden.training).cluster?.executors.map((e) => [e.task, e.behind, e.usage.gpu_used_bytes ?? 0]),
  ).toEqual([
    ["worker:0", 0, 3 * 2 ** 30],
    ["worker:1", 30, 0],
  ]);
  expect(readRuns(golden.runs)[0]?.series).toEqual([{ name: "loss", steps: [1, 2], values: [1, 0.5] }]);
  expect(readLines(golden.lines).lines.map((l) => [l.number, l.error])).toEqual([
    [41, false],
    [7, true],
  ]);
  expect([...(readSamples(golden.samples)[0]?.usage ?? [])]).toEqual([
    ["cpu_percent", [0, 95.123]],
    ["rss_bytes", [2 ** 30, 2 ** 30]],
  ]);
});

test("a text is searched for as it is, in any case unless it has capitals", () => {
  expect(["", "a.b", "Error (x"].map(pattern)).toEqual(["", "(?i)a\\.b", "Error \\(x"]);
});

/** A WebSocket that the test speaks for. */
class FakeSocket {
  static last: FakeSocket | undefined;
  onmessage: (event: { data: string }) => void = () => undefined;
  onclose: () => void = () => undefined;
  closed = false;
  constructor(readonly url: string) {
    FakeSocket.last = this;
  }
  close(): void {
    this.closed = true;
  }
}

async function following(path: string) {
  FakeSocket.last = undefined;
  Object.assign(window, { WebSocket: FakeSocket });
  const { sent, connection } = fake((message, comm) => {
    if (message.type === "lines_path") {
      comm.reply({ type: "lines_path", request: message.request, path });
    }
  });
  connection.retain({});
  const got: unknown[] = [];
  const selection = { cluster: "a", run: 3, task: "", text: "x" };
  const end = followLines(connection, "http://host/base/", selection, 500, (lines) => got.push(lines));
  await jest.advanceTimersByTimeAsync(1);
  return { sent, got, end, socket: FakeSocket.last as FakeSocket | undefined };
}

const good = "tfcluster/a/00112233445566778899aabbccddeeff/";

test("lines come by the WebSocket, and by the comm where that ends too early", async () => {
  const { sent, got, socket } = await following(good);
  expect(socket?.url).toBe(`ws://host/base/${good}lines/live?run=3&task=&grep=%28%3Fi%29x&last=500`);
  const line = { task: "worker:0", number: 41, time: 1.76e12, error: true, text: "x" };
  socket?.onmessage({ data: JSON.stringify({ lines: [line] }) });
  socket?.onmessage({ data: "no JSON" });
  socket?.onclose();
  expect(got).toMatchObject([{ lines: [{ number: 41, error: true, text: "x" }], over: false }]);
  expect(sent[sent.length - 1]).toMatchObject({ type: "follow", after: { "worker:0": 42 } });
});

test("the end of the run ends the WebSocket", async () => {
  const { sent, got, socket } = await following(good);
  socket?.onmessage({ data: '{"over":true}' });
  expect(got).toMatchObject([{ lines: [], over: true }]);
  expect(socket?.closed).toBe(true);
  expect(types(sent)).not.toContain("follow");
});

test("without a proxy, or with another address, lines come by the comm", async () => {
  for (const path of ["", "proxy/22/", "https://example.org/"]) {
    const { sent, socket } = await following(path);
    expect(socket).toBeUndefined();
    expect(types(sent)).toContain("follow");
  }
});
