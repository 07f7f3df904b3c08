// `make typescript-client` puts the API's description beside it
export default {
  input: 'openapi.json',
  // Firecrawl's part of the API is for Firecrawl's own clients: its crawls are cancelled by calls of its own
  parser: { filters: { orphans: true, tags: { exclude: ['firecrawl'] }, schemas: { exclude: ['/^Firecrawl/'] } } },
  logs: { level: 'error', file: false },
  // with the endings of files, as Node.js and browsers want them
  output: { path: 'api', importFileExtension: '.js' },
  plugins: [
    '@hey-api/typescript',
    // each call is given its client, so nothing is shared; it resolves to what the gateway answers, and throws the rest
    { name: '@hey-api/sdk', client: false, auth: false, responseStyle: 'data' },
    { name: '@hey-api/client-fetch', throwOnError: true },
  ],
};
