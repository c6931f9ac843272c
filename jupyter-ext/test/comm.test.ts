import { ask, boardId, isBoardPath, MIME, Problem, readReply, TARGET } from "../src/comm";
import golden from "../testdata/comm.json";
import { fakeKernel } from "./fakes";

const id = golden.output.id;

test("names agree with the kernel's", () => {
  expect(TARGET).toBe(golden.target);
  expect(MIME).toBe(golden.mime);
  expect(boardId(golden.output)).toBe(id);
});

test.each(golden.exchanges)("$name", async ({ request, reply }) => {
  const asked: unknown[] = [];
  const kernel = fakeKernel((question, comm) => {
    asked.push(question);
    comm.reply(reply);
  });
  const answer = ask(kernel, request.id);
  if (reply.type === "error") {
    await expect(answer).rejects.toEqual(new Problem(reply.message));
  } else {
    expect(await answer).toEqual({ path: reply.path, logdir: reply.logdir, curves: [] });
  }
  expect(asked).toEqual([request]);
  expect(kernel.comms.map((c) => [c.target, c.isDisposed])).toEqual([[TARGET, true]]);
});

test.each(golden.malformed)("a malformed answer is a problem: %j", (data) => {
  expect(() => readReply(data, id)).toThrow(Problem);
});

test("an answer about another board is a problem", () => {
  expect(() => readReply({ ...golden.exchanges[0]?.reply, id: "0".repeat(32) }, id)).toThrow(Problem);
});

test.each(golden.paths.good)("%j may be framed", (path) => {
  expect(isBoardPath(path)).toBe(true);
});

test.each(golden.paths.bad)("%j may not be framed", (path) => {
  expect(isBoardPath(path)).toBe(false);
  expect(() => readReply({ type: "tensorboard", id, path }, id)).toThrow("not opened");
});

test.each([undefined, null, "x", {}, { id: 1 }, { id: "../x" }])("%j names no board", (data) => {
  expect(boardId(data)).toBeUndefined();
});

test("a kernel without the target closes the comm", async () => {
  const kernel = fakeKernel((_, comm) => {
    comm.onClose();
  });
  await expect(ask(kernel, id)).rejects.toThrow("cluster is gone");
});

test("a silent kernel is said to be busy", async () => {
  await expect(
    ask(
      fakeKernel(() => undefined),
      id,
      1,
    ),
  ).rejects.toThrow("does not answer");
});

test("a dead kernel is not asked", async () => {
  const kernel = fakeKernel(() => undefined, "dead");
  await expect(ask(kernel, id)).rejects.toThrow("kernel is dead");
  expect(kernel.comms).toHaveLength(0);
});
