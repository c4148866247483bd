package ops

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// TestSelectionsThatAreRefused: coupons are named in one way, and a change has a limit.
func TestSelectionsThatAreRefused(t *testing.T) {
	many := func(of string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "]" }
	for request, want := range map[string]string{
		`{}`:                                            "give one of n, codes",
		`{"all":true,"n":[1],"most":1}`:                 "give one of n, codes",
		`{"n":[1],"status":"voided"}`:                   "give one of n, codes",
		`{"n":[1]}`:                                     "most: missing",
		`{"n":[0],"dry_run":true}`:                      "n: must be whole numbers",
		`{"n":["1"],"dry_run":true}`:                    "n: must be a list",
		`{"codes":["AAAA","****-****-LRR5"]}`:           "codes: number 2 has stars",
		`{"n":` + many("1", mostNumbers+1) + `}`:        "n: are more than 10,000",
		`{"codes":` + many(`"AAAA"`, mostCodes+1) + `}`: "codes: are more than 1,000",
		`{"status":"lost","dry_run":true}`:              "status: must be one of",
		`{"all":true,"most":10000001}`:                  "most: must be a whole number from 1",
		`{"n":[1,2,2,3],"most":2}`:                      "",
	} {
		fields := Fields{}
		if err := json.Unmarshal([]byte(request), &fields); err != nil {
			t.Fatal(err)
		}
		fields["campaign"] = json.RawMessage(`"c"`)
		q, err := Decode[VoidCoupons](Named("coupons.void").Fields, fields)
		if err == nil {
			err = q.check()
		}
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", request, err, want)
		}
	}
}

// TestWhoSeesAJob, and may stop it: changes of many coupons are for who may make them, of the campaigns of the key; all other jobs for
// who may start one.
func TestWhoSeesAJob(t *testing.T) {
	for _, test := range []struct {
		role            access.Role
		campaigns       []string
		coupons, backup bool
	}{
		{access.Operator, nil, true, true}, {access.Operator, []string{"a"}, true, false}, {access.Support, nil, true, false},
		{access.Support, []string{"a"}, true, false}, {access.Support, []string{"b"}, false, false}, {access.Producer, nil, false, false},
	} {
		who := Caller{Principal: access.Principal{ID: "x", Name: "x", Role: test.role, Campaigns: test.campaigns}}
		coupons := Job{Kind: CouponsJob, Action: "coupons.void", Request: []byte(`{"campaign":"a"}`)}
		backup := Job{Kind: BackupJob, Action: "backup.start", Request: []byte(`{"name":"x"}`)}
		if coupons.shownTo(who) != test.coupons || backup.shownTo(who) != test.backup {
			t.Errorf("%s %v sees coupons %t, a backup %t", test.role, test.campaigns, coupons.shownTo(who), backup.shownTo(who))
		}
	}
}
