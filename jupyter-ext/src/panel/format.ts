/** 1.5 GB, 12 kB. */
export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${n >= 100 || at === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[at] ?? ""}`;
}

/** Steps per second: 31.4, 0.25. */
export const rate = (n: number): string => Number(n.toPrecision(3)).toString();

/** 99 %, 0.4 %. */
export const percent = (n: number): string =>
  `${n.toFixed(n > 0 && n < 10 && !Number.isInteger(n) ? 1 : 0)} %`;

export const thousands = (n: number): string => n.toLocaleString("en-US");

/** A metric's value: 0.0123, 1.25e-7. */
export function metric(v: number): string {
  const size = Math.abs(v);
  return size !== 0 && (size < 1e-3 || size >= 1e6)
    ? v.toExponential(2)
    : Number(v.toPrecision(4)).toString();
}

/** 00:02:05 */
export function clock(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  return [s / 3600, (s / 60) % 60, s % 60].map((n) => Math.floor(n).toString().padStart(2, "0")).join(":");
}

/** The time of day of a Unix time in milliseconds: 14:05:09.123 */
export function timeOfDay(millis: number): string {
  const t = new Date(millis);
  const pad = (n: number, width: number): string => n.toString().padStart(width, "0");
  return `${pad(t.getHours(), 2)}:${pad(t.getMinutes(), 2)}:${pad(t.getSeconds(), 2)}.${pad(t.getMilliseconds(), 3)}`;
}
