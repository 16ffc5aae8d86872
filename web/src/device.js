/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Variant} Variant
 * @typedef {{
 *   vendor: string, architecture: string, description: string, software: boolean, features: string[]
 * }} Adapter
 */
import { inputError, reading, WebpteError } from "./errors.js";

/** Matrix units, as plans name them: the shape (M, N, K) of a product of f16 with sums in f32. */
const MATRICES = /^subgroup-matrix-(\d+)x(\d+)x(\d+)$/;
const MAX_MATRIX_SUBGROUP = 64; // invocations of the smallest workgroup that multiplies matrices
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|warp/i;

/** @returns {Promise<GPUAdapter>} */
export async function requestAdapter() {
  if (!globalThis.navigator?.gpu) {
    throw new WebpteError(
      "webgpu-missing",
      "This browser does not provide WebGPU to this page. Use a current Chrome, Edge, Safari or Firefox, over https.",
    );
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (adapter) return adapter;
  throw new WebpteError("no-adapter", "WebGPU found no GPU. Turn on hardware acceleration in the browser's settings.");
}

/**
 * Return the properties of an adapter that are shown to users.
 * @param {GPUAdapter} adapter
 * @returns {Adapter}
 */
export function describe(adapter) {
  const { vendor, architecture, description, device } = adapter.info;
  const fallback = /** @type {any} */ (adapter.info).isFallbackAdapter === true;
  const software = fallback || SOFTWARE.test(`${vendor} ${architecture} ${device} ${description}`);
  return { vendor, architecture, description: description || device, software, features: [...adapter.features].sort() };
}

/** @param {string} name as in plans: naga's name, with hyphens @returns {GPUFeatureName} */
function featureName(name) {
  if (MATRICES.test(name)) return /** @type {any} */ ("chromium-experimental-subgroup-matrix");
  return /** @type {GPUFeatureName} */ (name === "subgroup" ? "subgroups" : name);
}

/** @param {string} name as in plans @param {GPUAdapter} adapter */
function hasFeature(name, adapter) {
  if (!adapter.features.has(featureName(name))) return false;
  const shape = MATRICES.exec(name)?.slice(1).map(Number);
  if (!shape) return true;
  const { subgroupMatrixConfigs, subgroupMaxSize } = /** @type {any} */ (adapter.info);
  const offered = [...(subgroupMatrixConfigs ?? [])].some(
    ({ componentType, resultComponentType, M, N, K }) =>
      componentType === "f16" && resultComponentType === "f32" && `${[M, N, K]}` === `${shape}`,
  );
  return offered && subgroupMaxSize <= MAX_MATRIX_SUBGROUP;
}

/** @param {string} name */
const limitName = (name) => name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase());

/**
 * Return the requirements of a variant that the adapter does not meet, as text.
 * @param {Variant} variant
 * @param {GPUAdapter} adapter
 */
function missingRequirements(variant, adapter) {
  const limits = /** @type {any} */ (adapter.limits);
  const missing = variant.features.filter((name) => !hasFeature(name, adapter));
  for (const [name, value] of Object.entries(variant.limits)) {
    if (limits[limitName(name)] < value)
      missing.push(`${limitName(name)} ${value} (it has ${limits[limitName(name)]})`);
  }
  const width = /** @type {any} */ (adapter.info).subgroupMinSize ?? 0;
  if (variant.min_subgroup_size > width) missing.push(`subgroups of ${variant.min_subgroup_size} (it has ${width})`);
  return missing;
}

/**
 * Return the first variant that the adapter can run. Variants for its kind of device come first.
 * @param {Manifest} manifest
 * @param {string} method
 * @param {number | null} slots
 * @param {GPUAdapter} adapter
 * @returns {Variant}
 */
export function chooseVariant(manifest, method, slots, adapter) {
  return reading("manifest.json", () => choose(manifest, method, slots, adapter));
}

/** @type {typeof chooseVariant} */
function choose(manifest, method, slots, adapter) {
  const entry = Object.hasOwn(manifest.methods, method) && manifest.methods[method];
  if (!entry) {
    throw inputError(`method of ${manifest.name}`, Object.keys(manifest.methods).join(" or "), method);
  }
  const { software } = describe(adapter);
  const variants = entry.variants.filter(
    (variant) => (slots === null || variant.cache_slots === slots) && (software || variant.device !== "cpu"),
  );
  if (software) variants.sort((a, b) => Number(b.device === "cpu") - Number(a.device === "cpu"));
  const usable = variants.find((variant) => missingRequirements(variant, adapter).length === 0);
  if (usable) return usable;
  const last = variants[variants.length - 1];
  const missing = last ? missingRequirements(last, adapter).join(", ") : `a variant for ${slots} concurrent sequences`;
  throw new WebpteError("unsupported", `${method} of ${manifest.name} requires ${missing}. This GPU does not have it.`);
}

/**
 * Return a device with the features and limits of all variants that the adapter can run.
 * @param {Manifest} manifest
 * @param {GPUAdapter} adapter
 */
export async function requestDevice(manifest, adapter) {
  const { requiredLimits, requiredFeatures } = reading("manifest.json", () => requirements(manifest, adapter));
  try {
    return await adapter.requestDevice({ label: "webpte", requiredFeatures, requiredLimits });
  } catch (error) {
    throw new WebpteError("no-adapter", `The GPU device cannot be opened: ${error}`, { cause: error });
  }
}

/** @param {Manifest} manifest @param {GPUAdapter} adapter */
function requirements(manifest, adapter) {
  const variants = Object.values(manifest.methods).flatMap((method) => method.variants);
  const usable = variants.filter((variant) => missingRequirements(variant, adapter).length === 0);
  /** @type {Record<string, number>} */
  const requiredLimits = {};
  for (const [name, value] of usable.flatMap((variant) => Object.entries(variant.limits))) {
    requiredLimits[limitName(name)] = Math.max(requiredLimits[limitName(name)] ?? 0, value);
  }
  const features = usable.flatMap((variant) => variant.features.map(featureName));
  return { requiredLimits, requiredFeatures: [...new Set(features)] };
}
