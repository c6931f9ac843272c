import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { MIME } from "../src/comm";
import { BoardView, type Session } from "../src/view";
import golden from "../testdata/comm.json";
import { fakeGet, fakeKernel, type Answer } from "./fakes";

const board = golden.exchanges[0].reply;
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 20));

class FakeSession implements Session {
  readonly kernelChanged = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, Kernel.Status>(this);
  readonly connectionStatusChanged = new Signal<this, Kernel.ConnectionStatus>(this);
  session: Session["session"];
  constructor(answer: Answer) {
    this.session = { kernel: fakeKernel(answer) };
  }
}

async function shown(session: FakeSession | undefined, data: unknown = golden.output): Promise<BoardView> {
  const view = new BoardView({
    baseUrl: "http://h/user/ana/",
    get: fakeGet({ "data/environment": [200, "{}"] }),
    sessions: () => (session ? [session] : []),
  });
  await view.renderModel({ data: { [MIME]: data } } as unknown as IRenderMime.IMimeModel);
  Widget.attach(view, document.body);
  await settle();
  return view;
}

const frame = (view: BoardView): HTMLIFrameElement | null => view.node.querySelector("iframe");
const problem = (view: BoardView): string =>
  view.node.querySelector<HTMLElement>(".tfcluster-board-problem:not([hidden])")?.textContent ?? "";

test("frames the board below the base URL", async () => {
  const view = await shown(
    new FakeSession((_, comm) => {
      comm.reply(board);
    }),
  );
  expect(frame(view)?.src).toBe(`http://h/user/ana/${board.path ?? ""}`);
  expect(view.node.textContent).toContain(board.logdir);
  expect(problem(view)).toBe("");
  view.dispose();
});

test.each([
  ["no kernel", undefined, golden.output, "No kernel is running"],
  ["no id", undefined, { url: "http://evil/" }, "does not name"],
])("%s is told, and nothing framed", async (_, session, data, words) => {
  const view = await shown(session, data);
  expect(problem(view)).toContain(words);
  expect(frame(view)).toBeNull();
  view.dispose();
});

test("a restarted kernel is asked again, and an unchanged board stays", async () => {
  let reply: unknown = board;
  const session = new FakeSession((_, comm) => {
    comm.reply(reply);
  });
  const view = await shown(session);
  const first = frame(view);

  session.statusChanged.emit("restarting");
  expect(frame(view)).toBe(first);
  session.statusChanged.emit("idle");
  await settle();
  expect(frame(view)).toBe(first);

  reply = { ...board, path: golden.paths.good[0] };
  session.kernelChanged.emit(undefined);
  await settle();
  expect(frame(view)?.src).toContain(golden.paths.good[0]);
  view.dispose();
});

test("Reload asks again after a problem", async () => {
  let reply: unknown = { type: "error", message: "not yet" };
  const view = await shown(
    new FakeSession((_, comm) => {
      comm.reply(reply);
    }),
  );
  expect(problem(view)).toBe("not yet");
  reply = board;
  view.node.querySelector<HTMLElement>(".tfcluster-board-reload")?.click();
  await settle();
  expect(frame(view)).not.toBeNull();
  view.dispose();
});

test("a disposed view leaves no handlers", async () => {
  const session = new FakeSession((_, comm) => {
    comm.reply(board);
  });
  const view = await shown(session);
  view.dispose();
  session.kernelChanged.emit(undefined);
  await settle();
  expect((session.session?.kernel as ReturnType<typeof fakeKernel>).comms).toHaveLength(1);
});

const curve = (name: string) => ({
  name,
  last: "0.5",
  range: "0.5 to 2 · step 1 to 9",
  image: "data:image/svg+xml;base64,PHN2Zy8+",
});
const images = (view: BoardView): string[] =>
  Array.from(view.node.querySelectorAll<HTMLImageElement>(".tfcluster-board-curves:not([hidden]) img")).map(
    (image) => image.alt,
  );

test("without a way to TensorBoard the newest curves are shown", async () => {
  const session = new FakeSession((_, comm) => {
    comm.reply({ ...board, curves: [curve("loss"), curve("accuracy")] });
  });
  const view = new BoardView({
    baseUrl: "http://h/user/ana/",
    get: fakeGet({ "server-proxy/servers-info": [404, ""] }),
    sessions: () => [session],
  });
  await view.renderModel({
    data: { [MIME]: { ...golden.output, curves: [curve("loss")] } },
  } as unknown as IRenderMime.IMimeModel);
  Widget.attach(view, document.body);
  await settle();
  expect(problem(view)).toContain("jupyter-server-proxy is not installed");
  expect(images(view)).toEqual(["loss", "accuracy"]);
  view.dispose();
});

test("without a kernel the curves of the output are shown, and only images", async () => {
  const evil = { ...curve("evil"), image: "javascript:alert(1)" };
  const view = await shown(undefined, { ...golden.output, curves: [curve("loss"), evil, 7] });
  expect(images(view)).toEqual(["loss"]);
  expect(view.node.textContent).toContain("0.5 to 2");
  view.dispose();
});
