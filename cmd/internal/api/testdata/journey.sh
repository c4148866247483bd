#!/bin/bash
# A journey with curl. URL is the server's, AUTH is USER:PASSWORD of scrip.json; CODE is a coupon of campaign "winter".
set -euo pipefail
ask() { curl --silent --show-error --fail-with-body --user "$AUTH" "$@"; }
json() { ask --header 'Content-Type: application/json' "$@"; }

# Create a campaign; the same request again is a repeat.
json "$URL/v1/campaigns" --header 'Idempotency-Key: create-summer' --data '{"campaign":"summer","codes":0}'
json "$URL/v1/campaigns" --header 'Idempotency-Key: create-summer' --data '{"campaign":"summer","codes":0}'

# Import codes of your own: progress as it goes, the report last.
printf 'code\nSUN-7K2M9Q\nSUN-4XW8TP\nSUN-4XW8TP\n' | ask "$URL/v1/campaigns/summer/codes" --header 'Content-Type: text/csv' --data-binary @-

# Change it, if nobody else has changed it since.
etag=$(ask --head --request GET "$URL/v1/campaigns/summer" | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p')
json --request PATCH "$URL/v1/campaigns/summer" --header "If-Match: $etag" --data '{"category":"food"}'
status=$(curl --silent --output /dev/null --write-out '%{http_code}' --user "$AUTH" --request PATCH --header 'Content-Type: application/json' \
	"$URL/v1/campaigns/summer" --header "If-Match: $etag" --data '{"category":"toys"}')
[ "$status" = 412 ]

# Look a coupon up, with the code in the body, and void it.
json "$URL/v1/coupons/search" --data "{\"code\":\"$CODE\"}"
json "$URL/v1/coupons/void" --header 'Idempotency-Key: ticket-4711' --data "{\"code\":\"$CODE\",\"reason\":\"stolen\"}"

# Read the log.
ask "$URL/v1/events?types=coupon.voided"
