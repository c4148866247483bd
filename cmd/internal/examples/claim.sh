#!/usr/bin/env bash
# Claims a coupon of a campaign for each customer and prints the answer, one line each. curl 7.71 or newer.
#
#   URL=http://127.0.0.1:8080 KEY=sk_producer_… ./claim.sh summer alice bob
set -euo pipefail
campaign=$1
shift
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# claim CAMPAIGN CUSTOMER ID writes the body to $answer and prints the status. Each attempt has the same ID, also after a
# restart of this program. Without --fail curl retries after a lost connection and the statuses 408, 429 and 5xx, and obeys
# Retry-After.
claim() {
	curl --silent --show-error --max-time 10 --retry 8 --retry-all-errors \
		-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -H "Idempotency-Key: $3" \
		--data "{\"customer_id\":\"$2\"}" --output "$answer" --write-out '%{http_code}' "$URL/v1/campaigns/$1/claims"
}

for customer; do
	status=$(claim "$campaign" "$customer" "welcome-$customer")
	case $status in
	200 | 201) cat "$answer" ;;
	*) echo "claim for $customer: $status $(cat "$answer")" >&2 && exit 1 ;;
	esac
done
