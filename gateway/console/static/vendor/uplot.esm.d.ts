// What the console uses of uPlot, for the check of types. It is ours.

type Values = (number | null)[];

interface Axis {
  stroke?: () => string;
  font?: string;
  grid?: { stroke?: () => string; width?: number; show?: boolean };
  ticks?: { show: boolean };
  size?: number;
  space?: number;
  values?: (plot: uPlot, ticks: number[]) => string[];
}

interface Options {
  width: number;
  height: number;
  legend: { show: boolean };
  cursor: {
    y: boolean;
    drag: { x: boolean };
    points: { size: number };
    sync: { key: string; setSeries: boolean } | undefined;
  };
  scales: Record<string, { range: (plot: uPlot, low: number, high: number) => [number, number] }>;
  axes: Axis[];
  series: {
    label?: string;
    stroke?: () => string;
    dash?: number[] | undefined;
    width?: number;
    points?: { show: boolean; size: number };
  }[];
  hooks: { setCursor: ((plot: uPlot) => void)[] };
}

export default class uPlot {
  constructor(options: Options, data: [number[], ...Values[]], target: HTMLElement);
  readonly root: HTMLElement;
  readonly width: number;
  readonly cursor: { idx?: number | null };
  setData(data: [number[], ...Values[]]): void;
  setSize(size: { width: number; height: number }): void;
  setCursor(place: { left: number; top: number }): void;
  valToPos(value: number, scale: string): number;
  redraw(rebuild?: boolean): void;
  destroy(): void;
}
