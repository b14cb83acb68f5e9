// Formats numbers, sizes and times for display.

const whole = new Intl.NumberFormat("en");

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return trim(value / 1e9) + " B";
  if (size >= 1e6) return trim(value / 1e6) + " M";
  if (size >= 1e4) return trim(value / 1e3) + " k";
  if (size >= 100 || Number.isInteger(value)) return whole.format(Math.round(value));
  return trim(value);
}

function trim(value) {
  return value.toFixed(Math.abs(value) >= 100 ? 0 : 1).replace(/\.0$/, "");
}

export function rate(value) {
  return value === null || value === undefined ? "–" : `${short(value)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at ? trim(value) : Math.round(value)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${trim(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${trim(seconds / 86400)} days`;
}

export function ago(ms, now = Date.now()) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const seconds = Math.max(0, (now - ms) / 1000);
  return seconds < 2 ? "just now" : `${duration(seconds < 60 ? Math.round(seconds) : seconds).replace(/ (min|h) .*/, " $1")} ago`;
}

// -- times -------------------------------------------------------------------------------------

const pad = (value, size = 2) => String(value).padStart(size, "0");
const ZONE = "penstock-zone";
export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export const isUtc = () => localStorage.getItem(ZONE) === "utc";
export function useUtc(wanted) { localStorage.setItem(ZONE, wanted ? "utc" : "local"); }

// Returns the name of the time zone in which times are shown, with its difference to UTC.
export function zone() {
  if (isUtc()) return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

// Returns a date whose UTC fields are those of the chosen time zone.
function shifted(ms) {
  return new Date(isUtc() ? ms : ms - new Date(ms).getTimezoneOffset() * 60000);
}

export function clock(ms) {
  return shifted(ms).toISOString().slice(11, 19);
}

export function minute(ms) {
  return shifted(ms).toISOString().slice(11, 16);
}

export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0 || ms > 8.64e15 - 1e8) return "–";
  return shifted(ms).toISOString().replace("T", " ").slice(0, 23);
}

// Converts between milliseconds and the text of a datetime-local field.
export function fieldTime(ms) { return shifted(ms).toISOString().slice(0, 19); }
export function timeOf(text) { return new Date(isUtc() ? `${text}Z` : text).getTime(); }

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}
