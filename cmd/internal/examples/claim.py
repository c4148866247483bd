#!/usr/bin/env python3
"""Claims a coupon of a campaign for each customer and prints its code. Python 3.8 or newer, no packages.

    URL=http://127.0.0.1:8080 KEY=sk_producer_… ./claim.py summer alice bob
"""
import http.client, json, os, random, sys, time, urllib.error, urllib.request


def claim(campaign, customer, id):
    """The answer to a claim. Each attempt has the same id, also after a restart of this program."""
    request = urllib.request.Request(
        f"{os.environ['URL']}/v1/campaigns/{campaign}/claims",
        data=json.dumps({"customer_id": customer}).encode(),
        headers={"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json", "Idempotency-Key": id})
    for attempt in range(10):
        pause = random.uniform(0, min(10, 0.1 * 2 ** attempt))
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504):
                return json.load(error)    # final: "code" is the refusal
            pause = max(pause, float(error.headers.get("Retry-After", 0)))
        except (OSError, http.client.HTTPException, ValueError):
            pass                           # the connection was lost, perhaps within the answer
        time.sleep(pause)
    raise TimeoutError(f"the outcome of {id} is unknown: claim again with this id")


if __name__ == "__main__":
    for customer in sys.argv[2:]:
        answer = claim(sys.argv[1], customer, f"welcome-{customer}")
        if answer.get("status") != "claimed":
            sys.exit(f"claim for {customer}: {answer}")
        print(customer, answer["code"], flush=True)
