/**
 * The messages between this extension and a kernel that has clusters. The other side is package magics/panel. The tests
 * of both sides read testdata/comm.json, so that both use the same messages.
 */
import type { Kernel } from "@jupyterlab/services";

/** The comm's target name in the kernel. */
export const TARGET = "tfcluster.v1";

/** The saved output: `{id}`, which says nothing to anyone but the kernel that gave it. */
export const MIME = "application/vnd.tfcluster.tensorboard.v1+json";

/** A kernel that runs a cell for minutes may answer late; one that hangs never does. */
const ANSWER_MILLIS = 20_000;

/** Where a TensorBoard is found. */
export interface Board {
  /** Below the Jupyter server's base URL; holds a secret. */
  path: string;
  /** For people; empty where the kernel does not say. */
  logdir: string;
  /** Of the run's metrics, for a reader who cannot reach TensorBoard. */
  curves: Curve[];
}

/** A metric's curve as an image. */
export interface Curve {
  name: string;
  /** The last value. */
  last: string;
  range: string;
  /** A data URI of an SVG. */
  image: string;
}

/** A reason why there is no TensorBoard to show, in words for the reader. */
export class Problem extends Error {}

/** The part of a kernel connection that is needed here. */
export type CommKernel = Pick<Kernel.IKernelConnection, "createComm" | "status">;

/** Whether a path may be framed: that of a board, and of nothing else on the Jupyter server. */
export function isBoardPath(path: string): boolean {
  return /^tfcluster\/(?!\.{1,2}\/)[A-Za-z0-9._-]+\/[0-9a-f]{32}\/$/.test(path);
}

/** The id in a saved output, or nothing where it is not one. */
export function boardId(data: unknown): string | undefined {
  const id = isRecord(data) ? data.id : undefined;
  return typeof id === "string" && /^[0-9a-f]{32}$/.test(id) ? id : undefined;
}

/** Reads a kernel's answer to a question about a board. Throws a Problem for all that is not a board. */
export function readReply(data: unknown, id: string): Board {
  const said = isRecord(data) ? (data.message ?? data.error) : undefined;
  if (typeof said === "string") {
    throw new Problem(said);
  }
  if (!isRecord(data) || data.type !== "tensorboard" || data.id !== id || typeof data.path !== "string") {
    throw new Problem(
      "The kernel's answer is not understood: the extension and the kernel differ in version.",
    );
  }
  if (!isBoardPath(data.path)) {
    throw new Problem("The kernel named an address that is not a TensorBoard's; it is not opened.");
  }
  return {
    path: data.path,
    logdir: typeof data.logdir === "string" ? data.logdir : "",
    curves: readCurves(data),
  };
}

/** The curves in a saved output or in a kernel's answer. What is not an image of ours is left out. */
export function readCurves(data: unknown): Curve[] {
  const curves: unknown = isRecord(data) ? data.curves : undefined;
  return Array.isArray(curves) ? curves.filter(isCurve) : [];
}

function isCurve(value: unknown): value is Curve {
  return (
    isRecord(value) &&
    [value.name, value.last, value.range].every((text) => typeof text === "string") &&
    typeof value.image === "string" &&
    /^data:image\/svg\+xml;base64,[A-Za-z0-9+/=]*$/.test(value.image)
  );
}

/** Asks a kernel where a board is. The comm lives for this one question. */
export async function ask(kernel: CommKernel, id: string, millis = ANSWER_MILLIS): Promise<Board> {
  if (kernel.status === "dead") {
    throw new Problem("The kernel is dead. Restart it, then run the cell again.");
  }
  const comm = kernel.createComm(TARGET);
  let timer: number | undefined;
  try {
    const answer = await new Promise<unknown>((resolve, reject) => {
      timer = window.setTimeout(() => {
        reject(new Problem("The kernel does not answer. It may be busy: reload when its cell is done."));
      }, millis);
      comm.onMsg = (message) => {
        resolve(message.content.data);
      };
      comm.onClose = () => {
        reject(
          new Problem(
            "The cluster is gone, or this kernel has none: run the cell again with the kernel Python 3 (TFCluster).",
          ),
        );
      };
      comm.open();
      comm.send({ type: "tensorboard", id });
    });
    return readReply(answer, id);
  } finally {
    window.clearTimeout(timer);
    comm.onClose = () => undefined;
    if (!comm.isDisposed) {
      comm.close();
    }
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
