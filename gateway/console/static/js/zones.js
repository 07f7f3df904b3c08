// Time zones, found by the cities that people know.

/** @type {Record<string, string[]>} large cities that gave no zone its name */
const ALSO = {
  "America/Chicago": ["Dallas", "Houston"],
  "America/Los_Angeles": ["San Francisco", "Seattle"],
  "America/New_York": ["Boston", "Washington", "Atlanta", "Miami"],
  "America/Toronto": ["Montreal", "Ottawa"],
  "Asia/Calcutta": ["Kolkata", "Mumbai", "Delhi", "Bangalore"],
  "Asia/Kolkata": ["Mumbai", "Delhi", "Bangalore"],
  "Asia/Saigon": ["Ho Chi Minh", "Hanoi"],
  "Asia/Shanghai": ["Beijing", "Shenzhen"],
  "Asia/Tokyo": ["Osaka", "Kyoto"],
  "Europe/Berlin": ["Munich", "Hamburg", "Frankfurt", "Cologne"],
  "Europe/London": ["Manchester", "Edinburgh"],
  "Europe/Madrid": ["Barcelona", "Valencia"],
  "Europe/Paris": ["Lyon", "Marseille", "Toulouse"],
  "Europe/Rome": ["Milan", "Naples", "Turin"],
  "Europe/Zurich": ["Geneva", "Basel", "Bern"],
};

export const zoneNames = () => ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])];

/**
 * The cities of a zone: that in its name, and others.
 *
 * @param {string} zone
 */
export const citiesOf = (zone) => [zone.slice(zone.lastIndexOf("/") + 1).replaceAll("_", " "), ...(ALSO[zone] ?? [])];

/**
 * The zone that a text names by itself, or by one of its cities; undefined if there is none, or more than one.
 *
 * @param {string} text
 */
export function zoneOf(text, names = zoneNames()) {
  const wanted = text.trim().toLowerCase().replaceAll("_", " ");
  if (!wanted) return undefined;
  const same = names.find((one) => one.toLowerCase().replaceAll("_", " ") === wanted);
  const found = names.filter((one) => citiesOf(one).some((city) => city.toLowerCase() === wanted));
  return same ?? (found.length === 1 ? found[0] : undefined);
}
