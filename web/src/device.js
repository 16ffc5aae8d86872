/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Variant} Variant
 * @typedef {{
 *   vendor: string, architecture: string, description: string, software: boolean, features: string[]
 * }} Adapter
 */
import { WebpteError } from "./errors.js";

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|warp/i;

/** @returns {Promise<GPUAdapter>} */
export async function requestAdapter() {
  if (!globalThis.navigator?.gpu) {
    throw new WebpteError(
      "webgpu-missing",
      "This browser offers no WebGPU here. Take a new Chrome, Edge, Safari or Firefox; the page must come by https.",
    );
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (adapter) return adapter;
  throw new WebpteError(
    "no-adapter",
    "The browser has WebGPU but no GPU for it. Turn on hardware acceleration in its settings.",
  );
}

/**
 * What people are told of it.
 * @param {GPUAdapter} adapter
 * @returns {Adapter}
 */
export function describe(adapter) {
  const { vendor, architecture, description, device } = adapter.info;
  const fallback = /** @type {any} */ (adapter.info).isFallbackAdapter === true;
  const software = fallback || SOFTWARE.test(`${vendor} ${architecture} ${device} ${description}`);
  return { vendor, architecture, description: description || device, software, features: [...adapter.features].sort() };
}

/** @param {string} name as in plans: naga's, and with hyphens */
const featureName = (name) => /** @type {GPUFeatureName} */ (name === "subgroup" ? "subgroups" : name);
/** @param {string} name */
const limitName = (name) => name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase());

/**
 * What a variant needs and the adapter does not have, in words.
 * @param {Variant} variant
 * @param {GPUAdapter} adapter
 */
function lacking(variant, adapter) {
  const limits = /** @type {any} */ (adapter.limits);
  const found = variant.features.filter((name) => !adapter.features.has(featureName(name)));
  for (const [name, most] of Object.entries(variant.limits)) {
    if (limits[limitName(name)] < most) found.push(`${limitName(name)} ${most} (it has ${limits[limitName(name)]})`);
  }
  const width = /** @type {any} */ (adapter.info).subgroupMinSize ?? 0;
  if (variant.subgroup > width) found.push(`subgroups of ${variant.subgroup} (it has ${width})`);
  return found;
}

/**
 * The first variant that the adapter can run: those for its own kind of device come first.
 * @param {Manifest} manifest
 * @param {string} method
 * @param {number | null} slots
 * @param {GPUAdapter} adapter
 * @returns {Variant}
 */
export function chooseVariant(manifest, method, slots, adapter) {
  const found = manifest.methods[method];
  if (!found) {
    const names = Object.keys(manifest.methods).join(", ");
    throw new WebpteError("input", `${manifest.name} has no method ${method}; it has ${names}.`);
  }
  const { software } = describe(adapter);
  const variants = found.variants.filter(
    (variant) => (slots === null || variant.slots === slots) && (software || variant.device !== "cpu"),
  );
  if (software) variants.sort((a, b) => Number(b.device === "cpu") - Number(a.device === "cpu"));
  const chosen = variants.find((variant) => lacking(variant, adapter).length === 0);
  if (chosen) return chosen;
  const last = variants[variants.length - 1];
  const why = last ? lacking(last, adapter).join(", ") : `${slots} sequences at once`;
  throw new WebpteError("unsupported", `${method} of ${manifest.name} needs what this GPU does not offer: ${why}.`);
}

/**
 * A device with what the variants need that may be chosen.
 * @param {Manifest} manifest
 * @param {GPUAdapter} adapter
 */
export async function requestDevice(manifest, adapter) {
  const variants = Object.values(manifest.methods).flatMap((method) => method.variants);
  const usable = variants.filter((variant) => lacking(variant, adapter).length === 0);
  /** @type {Record<string, number>} */
  const requiredLimits = {};
  for (const [name, most] of usable.flatMap((variant) => Object.entries(variant.limits))) {
    requiredLimits[limitName(name)] = Math.max(requiredLimits[limitName(name)] ?? 0, most);
  }
  const requiredFeatures = [...new Set(usable.flatMap((variant) => variant.features.map(featureName)))];
  try {
    return await adapter.requestDevice({ label: "webpte", requiredFeatures, requiredLimits });
  } catch (error) {
    throw new WebpteError("no-adapter", `The GPU does not open: ${error}`, { cause: error });
  }
}
