/** The report of a GPU as Markdown, as `webpte bench --report` writes it in Python; ties may round otherwise. */

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export const statistics = (seconds) => ({
  median: median(seconds),
  min: Math.min(...seconds),
  max: Math.max(...seconds),
  n: seconds.length,
});

/** Return three digits without trailing zeros. */
const digits = (value) => String(Number(value.toPrecision(3)));
const number = (value) => (value < 999.5 ? digits(value) : Math.round(value).toLocaleString("en-US"));
const giga = (rate) => number(rate / 1e9);

function duration(seconds) {
  if (seconds >= 999.5) return `${seconds.toFixed(0)} s`;
  if (seconds >= 0.9995) return `${digits(seconds)} s`;
  return seconds >= 0.9995e-3 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds * 1e6)} µs`;
}

function size(count) {
  if (count < 1000) return `${count} B`;
  const [unit, divisor] = [
    ["kB", 1e3],
    ["MB", 1e6],
    ["GB", 1e9],
  ].find(([name, each]) => count / each < 999.5 || name === "GB");
  return `${digits(count / divisor)} ${unit}`;
}

const spread = ({ median: middle, min, max, n }) => `${duration(middle)} (${duration(min)}–${duration(max)}, n = ${n})`;
const cell = (text) => text.replaceAll("|", "\\|").split(/\s+/).filter(Boolean).join(" ");
const line = (cells) => `| ${cells.map(cell).join(" | ")} |`;
const table = (head, rows) => [head, head.map(() => "---"), ...rows].map(line).join("\n");
const sum = (items, value) => items.reduce((total, item) => total + Number(value(item)), 0);

function summary(report) {
  const { adapter, probes, checks, models } = report;
  const tokens = models.map((model) => model.tokens).filter(Boolean);
  const width = report.subgroup ? `subgroups of ${report.subgroup}` : "no subgroups";
  const rows = [
    ["adapter", [adapter.name, adapter.kind, adapter.backend, adapter.driver].filter(Boolean).join(", ")],
    [
      "versions",
      Object.entries(report.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(", "),
    ],
    ["system", [report.os, `webpte in ${report.runtime}`, report.date].join(", ")],
    ["features", [...report.features, width].join(", ")],
    ["op checks", `${sum(checks, ({ ok }) => ok)} of ${checks.length} passed`],
    ["tokens", `${sum(tokens, ({ equal }) => equal)} of ${sum(tokens, ({ n }) => n)} as expected`],
    ["copy, FMA", `${giga(probes.copy_bytes_per_second)} GB/s, ${giga(probes.flops_per_second)} GFLOP/s`],
    ["dispatch", `${duration(probes.dispatch_seconds)} each, of 1,000 in a submit`],
    ["submit and wait", spread(probes.submit)],
  ];
  if (report.restricted) rows.push(["restricted to", report.restricted]);
  if (report.load) rows.push(["other load", report.load]);
  for (const left of report.left_out) rows.push(["not measured", `width ${left}, for lack of time`]);
  for (const { name, ok, detail } of checks) if (!ok) rows.push([`failed: ${name}`, detail]);
  for (const model of models) if (model.problem) rows.push([`failed: width ${model.width}`, model.problem]);
  return rows;
}

const modelRow = ({ width, layers, weight_bytes, decode, decode_paced: paced, prefill }) => [
  `${width} x ${layers} layer${layers === 1 ? "" : "s"}`,
  size(weight_bytes),
  decode ? spread(decode) : "",
  decode ? number(decode.tokens_per_second) : "",
  decode ? giga(decode.weight_bytes_per_second) : "",
  paced ? number(paced.tokens_per_second) : "",
  prefill ? spread(prefill) : "",
  prefill ? number(prefill.tokens_per_second) : "",
];
const MODEL_HEAD = [
  "width",
  "weights",
  "decode, 1 token",
  "tok/s",
  "GB/s",
  "paced tok/s",
  "prefill, 255 tokens",
  "tok/s",
];

/** Return the block to paste into an issue. */
export function markdown(report) {
  const parts = [`### ${cell(report.adapter.name)}${report.software ? " (software)" : ""}`];
  parts.push(table(["", ""], summary(report)));
  if (report.models.length) parts.push(table(MODEL_HEAD, report.models.map(modelRow)));
  return `${parts.join("\n\n")}\n`;
}
