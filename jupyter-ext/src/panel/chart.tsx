import * as React from "react";
import uPlot from "uplot";

export interface Line {
  label: string;
  x: number[];
  y: number[];
}

interface Props {
  title: string;
  lines: Line[];
  /** What is used, over Unix time in seconds: y begins at 0. */
  time?: boolean;
  value: (v: number) => string;
}

/** Told apart by most people, on white and on black. */
const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"];

export const colour = (i: number): string => COLOURS[i % COLOURS.length] ?? "";

const HEIGHT = 180;

/** Lines over a common axis, with the values under the pointer in the legend. */
export function Chart({ title, lines, time, value }: Props): React.ReactElement {
  const box = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const labels = lines.map((l) => l.label).join("\n");
  const theme = React.useSyncExternalStore(onTheme, themeName);

  React.useEffect(() => {
    const parent = box.current;
    if (!parent) {
      return;
    }
    const made = new uPlot(options(title, labels.split("\n"), parent, time ?? false, value), [[]], parent);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: width(parent), height: HEIGHT });
    });
    observer.observe(parent);
    return () => {
      observer.disconnect();
      plot.current = null;
      made.destroy();
    };
  }, [title, labels, time, value, theme]); // a canvas keeps the colours with which it was drawn

  React.useEffect(() => {
    plot.current?.setData(join(lines));
  });

  return <div ref={box} className="tfcluster-chart" role="img" aria-label={describe(title, lines, value)} />;
}

const themeName = (): string => document.body.dataset.jpThemeName ?? "";

/** Calls back when JupyterLab has changed its theme. */
function onTheme(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name"] });
  return () => {
    observer.disconnect();
  };
}

/** The ends of an axis for values that are never negative. */
export function fromZero(_: uPlot, _least: number | null, most: number | null): uPlot.Range.MinMax {
  return [0, most !== null && most > 0 ? 1.1 * most : 1];
}

/** Lines over the union of their x values. */
function join(lines: Line[]): uPlot.AlignedData {
  return lines.length === 0 ? [[]] : uPlot.join(lines.map((l): uPlot.AlignedData => [l.x, l.y]));
}

const width = (parent: HTMLElement): number => Math.max(200, parent.clientWidth);

function options(
  title: string,
  labels: string[],
  parent: HTMLElement,
  time: boolean,
  value: (v: number) => string,
): uPlot.Options {
  const style = getComputedStyle(parent);
  const ink = style.getPropertyValue("--jp-ui-font-color1").trim() || "#666";
  const grid = { stroke: style.getPropertyValue("--jp-border-color2").trim() || "#ccc", width: 1 };
  const axis = { stroke: ink, grid, ticks: grid };
  return {
    title,
    width: width(parent),
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    scales: { x: { time }, ...(time && { y: { range: fromZero } }) },
    axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((v) => value(v)) }],
    series: [
      { label: time ? "time" : "step" },
      ...labels.map((label, i) => ({
        label,
        stroke: colour(i),
        width: 1.5,
        spanGaps: !time,
        value: (_: uPlot, v: number | null) => (v === null ? "–" : value(v)),
      })),
    ],
  };
}

/** The chart in words, for a screen reader. */
function describe(title: string, lines: Line[], value: (v: number) => string): string {
  const last = lines.map(
    (l) => `${l.label} ${l.y.length > 0 ? value(l.y[l.y.length - 1] ?? 0) : "no values"}`,
  );
  return `${title}: ${last.join(", ")}`;
}
