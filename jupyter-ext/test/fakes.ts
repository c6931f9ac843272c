import type { CommKernel } from "../src/comm";
import type { Get } from "../src/reach";

/** A comm's other side: what the kernel makes of a question. */
export type Answer = (question: unknown, comm: FakeComm) => void;

export class FakeComm {
  onMsg: (message: { content: { data: unknown } }) => void = () => undefined;
  onClose: () => void = () => undefined;
  isDisposed = false;
  constructor(
    readonly target: string,
    private readonly answer: Answer,
  ) {}
  open(): void {
    return;
  }
  send(question: unknown): void {
    this.answer(question, this);
  }
  close(): void {
    this.isDisposed = true;
  }
  reply(data: unknown): void {
    this.onMsg({ content: { data } });
  }
}

/** A kernel connection of which only comms work. */
export function fakeKernel(answer: Answer, status = "idle"): CommKernel & { comms: FakeComm[] } {
  const comms: FakeComm[] = [];
  return {
    comms,
    status,
    createComm: (target: string) => {
      const comm = new FakeComm(target, answer);
      comms.push(comm);
      return comm;
    },
  } as unknown as CommKernel & { comms: FakeComm[] };
}

/** Answers each address by the first suffix that fits it: a status, and a body. */
export function fakeGet(answers: Record<string, [number, string]>): Get & { asked: string[] } {
  const asked: string[] = [];
  const get = (url: string): Promise<Response> => {
    asked.push(url);
    const [status, body] = Object.entries(answers).find(([suffix]) => url.endsWith(suffix))?.[1] ?? [404, ""];
    return Promise.resolve({
      ok: status < 400,
      status,
      statusText: "status text",
      text: () => Promise.resolve(body),
      json: () => Promise.resolve(JSON.parse(body) as unknown),
    } as Response);
  };
  return Object.assign(get, { asked });
}
