import { isBoardPath, Problem } from "../comm";
import type { Connection } from "./connection";
import { readLines, readText, type Line, type Lines } from "./protocol";

/** Which lines: those of a run and task ("" is all) that have a text. */
export interface Selection {
  cluster: string;
  run: number;
  task: string;
  text: string;
}

/** Lines are handed on this often. */
const FLUSH_MILLIS = 100;

/** More lines between two flushes are not shown. */
const MOST = 5_000;

/**
 * Passes on the last lines of a selection, then new ones: all of them by the broker's WebSocket, or, where no proxy leads to
 * it, by the comm, which leaves out the middle of bursts. Returns the function that ends it.
 */
export function followLines(
  connection: Connection,
  baseUrl: string,
  selection: Selection,
  last: number,
  take: (lines: Lines | Problem) => void,
): () => void {
  let end: () => void = () => undefined;
  let ended = false;
  const byComm = (after: Record<string, number> | undefined): void => {
    if (!ended) {
      end = connection.follow({ ...selection, last, ...(after && { after }) }, take);
    }
  };
  void linesUrl(connection, baseUrl, selection, "lines/live", { last: last.toString() }).then((url) => {
    if (ended || url === undefined) {
      byComm(undefined);
      return;
    }
    end = bySocket(url.replace(/^http/, "ws"), selection.run, take, byComm);
  });
  return () => {
    ended = true;
    end();
  };
}

/** The URL of a selection's lines below the cluster's path; undefined where the browser cannot reach it. */
export async function linesUrl(
  connection: Connection,
  baseUrl: string,
  selection: Selection,
  name: "lines" | "lines/live",
  more: Record<string, string>,
): Promise<string | undefined> {
  try {
    const path = readText(await connection.request("lines_path", { cluster: selection.cluster }), "path");
    if (!isBoardPath(path)) {
      return undefined;
    }
    const query = new URLSearchParams({
      run: selection.run.toString(),
      task: selection.task,
      grep: pattern(selection.text),
      ...more,
    });
    return `${baseUrl}${path}${name}?${query.toString()}`;
  } catch {
    return undefined; // the comm says why, if it cannot be asked either
  }
}

/** The pattern that finds a text, in any case unless it has capitals; magics/panel has the same rule. */
export function pattern(text: string): string {
  const quoted = text.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&");
  return text === "" ? "" : text.toLowerCase() === text ? `(?i)${quoted}` : quoted;
}

/** Reads a WebSocket; where it ends before the run, `instead` goes on after the lines that have come. */
function bySocket(
  url: string,
  run: number,
  take: (lines: Lines | Problem) => void,
  instead: (after: Record<string, number> | undefined) => void,
): () => void {
  const socket = new WebSocket(url);
  const after: Record<string, number> = {};
  let came = false;
  let done = false;
  let lines: Line[] = [];
  let skipped = 0;
  let gap = "";
  const flush = (over: boolean): void => {
    if (lines.length > 0 || gap !== "" || over) {
      take({ run, lines, skipped, gap, over });
    }
    lines = [];
    skipped = 0;
    gap = "";
  };
  const timer = window.setInterval(() => {
    flush(false);
  }, FLUSH_MILLIS);
  const stop = (): void => {
    done = true;
    window.clearInterval(timer);
    socket.close();
  };
  socket.onmessage = (event) => {
    const got = readMessage(event.data);
    came = true;
    for (const l of got.lines) {
      after[l.task] = Math.max(after[l.task] ?? 0, l.number + 1);
    }
    lines.push(...got.lines);
    gap = got.gap || gap;
    const over = lines.length - MOST;
    if (over > 0) {
      skipped += over;
      lines = lines.slice(over);
    }
    if (got.over || got.problem !== "") {
      stop();
      flush(got.over);
      if (got.problem !== "") {
        take(new Problem(got.problem));
      }
    }
  };
  socket.onclose = () => {
    if (!done) {
      stop();
      flush(false);
      instead(came ? after : undefined);
    }
  };
  return stop;
}

/** Reads a message of the WebSocket. */
function readMessage(raw: unknown): Lines & { problem: string } {
  let data: Record<string, unknown> = {};
  try {
    data = JSON.parse(String(raw)) as Record<string, unknown>;
  } catch {
    // no message of ours has this form; it has no lines
  }
  return { ...readLines(data), problem: readText(data, "error") };
}
