#!/bin/sh
# Crawls a site on weekdays at half past eight, and prints the items of the latest run as CSV.
#
#   crawl_every_morning.sh https://example.com          # sets it up; prints the items, once there was a run
#   crawl_every_morning.sh https://example.com now      # the same, after a run that begins now
#
# Run it as often as you like: the same request is answered with the schedule that is there.
set -eu
url=${DISCOVERYBOT_URL:-http://127.0.0.1:8001}
site=$1

call() {
  curl --silent --show-error --fail-with-body ${DISCOVERYBOT_KEY:+--header "Authorization: Bearer $DISCOVERYBOT_KEY"} "$@"
}
job_id() { sed 's/.*"job_id": *"\([^"]*\)".*/\1/'; }

schedule=$(call "$url/crawl" --json '{
  "user_id": "example", "spider": "seo", "start_urls": ["'"$site"'"], "depth": 1,
  "interval": "30 8 * * MON-FRI", "timezone": "Europe/Paris"
}' | job_id)
echo "schedule $schedule" >&2

if [ "${2:-}" = now ]; then
  run=$(call --request POST "$url/schedules/$schedule/run" | job_id)
  call --no-buffer "$url/jobs/$run/logs" > /dev/null   # the stream ends when the run does
fi
call "$url/jobs/$schedule/items?format=csv"
