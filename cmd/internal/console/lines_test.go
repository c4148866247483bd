package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// stand is what acts are done to: each to a thing of its own.
type stand struct {
	*testing.T
	*apitest.Rig
	receiver string
}

// ask reads a value of /v1 by its path in the answer.
func (s *stand) ask(path string, names ...string) string {
	s.Helper()
	return member(s.Ask(s, "", "GET", path, nil).Want(s, 200).Object(s), names...)
}

func (s *stand) post(path string, body any, names ...string) string {
	s.Helper()
	return member(s.Ask(s, "", "POST", path, body).Want(s, 200, 201, 202).Object(s), names...)
}

// member is a value in an object.
func member(of any, names ...string) string {
	for _, name := range names {
		of = of.(map[string]any)[name]
	}
	if text, ok := of.(string); ok || of == nil {
		return text
	}
	raw, _ := json.Marshal(of)
	return string(raw)
}

// is makes a check that a value of /v1 becomes so.
func (s *stand) is(path, want string, names ...string) func() bool {
	return func() bool { return s.ask(path, names...) == want }
}

// ended waits for the jobs, of which there is one of a kind at a time.
func (s *stand) ended() bool {
	jobs := s.ask("/v1/jobs", "items")
	return !strings.Contains(jobs, `"state":"running"`) && !strings.Contains(jobs, `"state":"waiting"`)
}

func (s *stand) campaign(settings map[string]any) string {
	settings["codes"], settings["expires_at"] = 100, time.Now().Add(time.Hour).UTC()
	return s.Campaign(s, settings)
}

// claimed is a campaign with one coupon, of ann.
func (s *stand) claimed() (campaign, code string) {
	campaign = s.campaign(map[string]any{})
	return campaign, s.Claim(s, campaign, "ann")
}

// wait waits until the tables have the coupon of a campaign.
func (s *stand) wait(campaign string) {
	apitest.Until(s, "the tables have it", func() bool { return s.ask("/v1/coupons?campaign="+campaign, "items") != "[]" })
}

func (s *stand) hook() string {
	return s.post("/v1/webhooks", map[string]any{"url": s.receiver, "types": []string{"coupon.*"}}, "id")
}

func (s *stand) letter() string {
	before := s.ask("/v1/dead-letters", "items")
	if err := s.Shop.Conn().Publish("scrip.cmd.any", []byte(`{"type":"claim","campaign":"any","customer_id":""}`+"\n")); err != nil {
		s.Fatal(err)
	}
	id := ""
	apitest.Until(s, "there is another dead letter", func() bool {
		for _, l := range s.Ask(s, "", "GET", "/v1/dead-letters", nil).Want(s, 200).Object(s)["items"].([]any) {
			if l := l.(map[string]any)["id"].(string); !strings.Contains(before, `"`+l+`"`) {
				id = l
			}
		}
		return id != ""
	})
	return id
}

func (s *stand) key() string {
	return s.post("/v1/keys", map[string]any{"name": apitest.Name("k"), "role": "support"}, "id")
}

// lines are for each act the values of its form, of a thing of its own, and what is so afterwards; nil = no more than that it
// was done. A value with a quote is quoted for a shell.
var lines = map[string]func(*stand) (fields map[string]string, done func() bool){
	"createCampaign": func(s *stand) (map[string]string, func() bool) {
		c := apitest.Name("made")
		return map[string]string{"campaign": c, "codes": "10", "expires_at": "+90m", "benefit": `{"text":"it's $5"}`, "priority": "high"}, s.is("/v1/campaigns/"+c, "it's $5", "benefit", "text")
	},
	"updateCampaign": func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{"category": "food"})
		return map[string]string{"campaign": c, "codes": "200", "benefit": `{"percent":20}`, "category": ""}, func() bool {
			return s.is("/v1/campaigns/"+c, "200", "codes")() && s.is("/v1/campaigns/"+c, "", "category")()
		}
	},
	"pauseCampaign": func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{})
		return map[string]string{"campaign": c}, s.is("/v1/campaigns/"+c, "paused", "status")
	},
	"resumeCampaign": func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{})
		s.post("/v1/campaigns/"+c+"/pause", nil)
		return map[string]string{"campaign": c}, s.is("/v1/campaigns/"+c, "active", "status")
	},
	"endCampaign": func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{})
		return map[string]string{"campaign": c, "typed": c}, s.is("/v1/campaigns/"+c, "ended", "status")
	},
	"cloneCampaign": func(s *stand) (map[string]string, func() bool) {
		to := apitest.Name("clone")
		return map[string]string{"campaign": s.campaign(map[string]any{"benefit": map[string]any{"text": "half"}}), "to": to, "codes": "7"}, s.is("/v1/campaigns/"+to, "7", "codes")
	},
	"voidCoupons": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		s.wait(c)
		return map[string]string{"campaign": c, "status": "claimed", "customer_id": "ann", "most": "1", "reason": "it's stolen"}, s.is("/v1/campaigns/"+c, "1", "voided")
	},
	"extendCoupons": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		was := s.ask("/v1/campaigns/"+c+"/coupons/1", "expires_at")
		s.wait(c)
		return map[string]string{"campaign": c, "all": "true", "most": "1", "expires_at": "+9h"}, func() bool { return s.ask("/v1/campaigns/"+c+"/coupons/1", "expires_at") != was }
	},
	"allotCoupons": func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{})
		return map[string]string{"campaign": c, "count": "3", "batch": "flyer"}, s.is("/v1/campaigns/"+c, "3", "claimed")
	},
	"voidCoupon": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		return map[string]string{"campaign": c, "n": "1", "reason": "it's lost"}, s.is("/v1/campaigns/"+c+"/coupons/1", "voided", "status")
	},
	"extendCoupon": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		return map[string]string{"campaign": c, "n": "1", "expires_at": "2031-01-02 03:04"}, s.is("/v1/campaigns/"+c+"/coupons/1", "2031-01-02T03:04:00Z", "expires_at")
	},
	"redeem": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		return map[string]string{"campaign": c, "n": "1", "order_id": "o 1", "customer_id": "ann"}, s.is("/v1/campaigns/"+c+"/coupons/1", "redeemed", "status")
	},
	"rollback": func(s *stand) (map[string]string, func() bool) {
		c, code := s.claimed()
		s.Redeem(s, code, "o 1")
		return map[string]string{"campaign": c, "n": "1", "order_id": "o 1"}, s.is("/v1/campaigns/"+c+"/coupons/1", "claimed", "status")
	},
	"setReminder": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		return map[string]string{"campaign": c, "customer_id": "ann", "kind": "expires", "before": "10m"}, s.is("/v1/campaigns/"+c, "1", "reminders_pending")
	},
	"cancelReminder": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		if _, err := s.Shop.Remind(s.Context(), c, "ann", "expires", 10*time.Minute); err != nil {
			s.Fatal(err)
		}
		return map[string]string{"campaign": c, "customer_id": "ann", "kind": "expires", "before": "10m"}, s.is("/v1/campaigns/"+c, "0", "reminders_pending")
	},
	"addOptOut": func(s *stand) (map[string]string, func() bool) {
		name := apitest.Name("quiet")
		return map[string]string{"customer_id": name, "reason": "a letter"}, s.is("/v1/opt-outs/"+name, "true", "opted_out")
	},
	"removeOptOut": func(s *stand) (map[string]string, func() bool) {
		name := apitest.Name("loud")
		if err := s.Shop.Manage(s.Context(), "optout.add", map[string]string{"customer_id": name}, &struct{}{}); err != nil {
			s.Fatal(err)
		}
		return map[string]string{"customer_id": name}, s.is("/v1/opt-outs/"+name, "false", "opted_out")
	},
	"createWebhook": func(s *stand) (map[string]string, func() bool) {
		path := "/" + apitest.Name("made")
		return map[string]string{"url": s.receiver + path, "types": "coupon.claimed\ncoupon.redeemed", "batch": "5", "max_age": "2h", "give_up_4xx": "true"}, func() bool {
			return strings.Contains(s.ask("/v1/webhooks?limit=1000", "items"), path)
		}
	},
	"updateWebhook": func(s *stand) (map[string]string, func() bool) {
		w := s.hook()
		return map[string]string{"webhook": w, "batch": "7", "types": "coupon.claimed\ncampaign.*"}, s.is("/v1/webhooks/"+w, "7", "batch")
	},
	"rotateWebhook": func(s *stand) (map[string]string, func() bool) { return map[string]string{"webhook": s.hook()}, nil },
	"pauseWebhook": func(s *stand) (map[string]string, func() bool) {
		w := s.hook()
		return map[string]string{"webhook": w}, s.is("/v1/webhooks/"+w, "paused", "state")
	},
	"resumeWebhook": func(s *stand) (map[string]string, func() bool) {
		w := s.hook()
		s.post("/v1/webhooks/"+w+"/pause", nil)
		return map[string]string{"webhook": w}, s.is("/v1/webhooks/"+w, "active", "state")
	},
	"testWebhook": func(s *stand) (map[string]string, func() bool) { return map[string]string{"webhook": s.hook()}, nil },
	"rehearseWebhook": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"webhook": s.hook(), "fail": "1"}, nil
	},
	"retryWebhookDeadLetters": func(s *stand) (map[string]string, func() bool) { return map[string]string{"webhook": s.hook()}, nil },
	"replayWebhook": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"webhook": s.hook(), "from": "2026-01-01 00:00"}, nil
	},
	"deleteWebhook": func(s *stand) (map[string]string, func() bool) {
		w := s.hook()
		return map[string]string{"webhook": w, "typed": w}, func() bool { return s.Ask(s, "", "GET", "/v1/webhooks/"+w, nil).Status == http.StatusNotFound }
	},
	"retryDeadLetter": func(s *stand) (map[string]string, func() bool) {
		l, c := s.letter(), s.campaign(map[string]any{})
		return map[string]string{"id": l, "lines": `{"type":"claim","campaign":"` + c + `","customer_id":"o'neill"}`}, s.is("/v1/campaigns/"+c, "1", "claimed")
	},
	"discardDeadLetters": func(s *stand) (map[string]string, func() bool) {
		l := s.letter()
		return map[string]string{"ids": l, "note": "it's a test"}, func() bool { return strings.Contains(s.ask("/v1/dead-letters?state=discarded", "items"), l) }
	},
	"discardAllDeadLetters": func(s *stand) (map[string]string, func() bool) {
		l := s.letter()
		return map[string]string{"all": "true", "stream": "commands", "since": "2026-01-01", "note": "all of them"}, func() bool { return strings.Contains(s.ask("/v1/dead-letters?state=discarded", "items"), l) }
	},
	"reopenDeadLetters": func(s *stand) (map[string]string, func() bool) {
		l := s.letter()
		s.post("/v1/dead-letters/discard", map[string]any{"ids": []string{l}})
		return map[string]string{"ids": l, "undo": "true"}, func() bool { return strings.Contains(s.ask("/v1/dead-letters?state=open", "items"), l) }
	},
	"discardSenderDeadLetters": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"sender": "mailer", "all": "true"}, nil
	},
	"startVerification": func(s *stand) (map[string]string, func() bool) {
		c, _ := s.claimed()
		return map[string]string{"campaign": c}, s.ended
	},
	"startRebuild":       func(s *stand) (map[string]string, func() bool) { return nil, s.ended },
	"undoRebuild":        func(s *stand) (map[string]string, func() bool) { s.rebuild(); return nil, s.ended },
	"dropPreviousTables": func(s *stand) (map[string]string, func() bool) { s.rebuild(); return nil, s.ended },
	"startBackup": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"name": apitest.Name("backup")}, s.ended
	},
	"stopJob": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"id": s.post("/v1/verifications", map[string]any{}, "id")}, s.ended
	},
	"createKey": func(s *stand) (map[string]string, func() bool) {
		name := apitest.Name("o'neill")
		return map[string]string{"name": name, "role": "support", "campaigns": "summer\nwinter", "rate": "20", "codes": "true"}, func() bool { return strings.Contains(s.ask("/v1/keys?limit=1000", "items"), name) }
	},
	"rotateKey": func(s *stand) (map[string]string, func() bool) {
		return map[string]string{"key": s.key(), "overlap": "1h"}, nil
	},
	"revokeKey": func(s *stand) (map[string]string, func() bool) {
		k := s.key()
		return map[string]string{"key": k}, s.is("/v1/keys/"+k, "true", "revoked")
	},
	"changeSettings": func(s *stand) (map[string]string, func() bool) {
		changes++ // another value each time
		batch := fmt.Sprint(100 + changes)
		return map[string]string{"settings.reminder.batch": batch, "settings.reminder.grace": batch + "s", "settings.http.burst": ""}, s.is("/v1/settings", batch, "settings", "reminder.batch")
	},
	"pauseExpiry":     paused("expiry", false),
	"resumeExpiry":    paused("expiry", true),
	"pauseReminders":  paused("reminder", false),
	"resumeReminders": paused("reminder", true),
}

var changes int

// paused is of the acts that pause what is due of a campaign, or resume it.
func paused(of string, before bool) func(s *stand) (map[string]string, func() bool) {
	return func(s *stand) (map[string]string, func() bool) {
		c := s.campaign(map[string]any{})
		if before {
			s.Ask(s, "", "PATCH", "/v1/settings", map[string]any{"settings": map[string]any{of + ".pause": map[string]any{c: true}}}, "If-Match", "*").Want(s, 200)
		}
		return map[string]string{"campaign": c}, func() bool { return strings.Contains(s.ask("/v1/settings", "settings", of+".pause"), c) != before }
	}
}

func (s *stand) rebuild() {
	s.post("/v1/rebuilds", map[string]any{})
	apitest.Until(s, "the rebuild has ended", s.ended)
}

var codeLine = regexp.MustCompile(`(?s)<code class="(cli|curl)">(.*?)</code>`)

// TestLines: each act is done in its form, by its command line and by its curl line, each on a thing of its own. All three are
// accepted and have the same effect.
func TestLines(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl on this machine")
	}
	bin := t.TempDir()
	if err := e2e.Build(bin + "/scrip"); err != nil {
		t.Fatal(err)
	}
	data := ""
	r := serve(t, func(o *server.Options) { data = o.Data })
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	browser := logIn(t, r, "operator+clear")
	s := &stand{t, r, receiver.URL}
	s.claimed() // an event that a webhook may rehearse
	run := func(line string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `curl() { `+curl+` -sS --fail-with-body "$@"; }; `+line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SCRIP_DATA="+data, "SCRIP_KEY="+r.Keys["operator+clear"], "no_proxy=127.0.0.1")
		if strings.HasPrefix(line, "scrip ") { // as the owner of the machine
			cmd.Env = append(cmd.Env, "SCRIP_KEY=")
		}
		return cmd.CombinedOutput()
	}
	for _, act := range console.Acts() {
		row := lines[act]
		if row == nil {
			t.Errorf("the table has no values for the act %s", act)
			continue
		}
		for _, by := range []string{"form", "cli", "curl"} {
			t.Run(act+"/"+by, func(t *testing.T) {
				s := &stand{t, r, receiver.URL}
				apitest.Until(t, "earlier jobs have ended", s.ended)
				fields, done := row(s)
				query := url.Values{}
				for name, value := range fields {
					query.Set(name, value)
				}
				body, _ := browser.get(t, "/acts/"+act+"?"+query.Encode(), http.StatusOK)
				form := sheets(body)[0]
				for name, value := range fields {
					if _, has := form.values[name]; !has && value != "true" {
						t.Fatalf("the form has no field %s: %v", name, form.values)
					}
					form.values.Set(name, value)
				}
				switch by {
				case "form":
					form.values.Set("step", "do")
					if status, _, after := browser.post(t, form.action, form.values); status >= 400 {
						t.Fatalf("%v: %d\n%s", form.values, status, main(after))
					}
				default:
					status, _, shown := browser.post(t, form.action+"/lines", form.values)
					line := ""
					for _, m := range codeLine.FindAllStringSubmatch(shown, -1) {
						if m[1] == by {
							line = html.UnescapeString(m[2])
						}
					}
					if status != http.StatusOK || line == "" {
						t.Fatalf("the lines: %d\n%s", status, shown)
					}
					if out, err := run(line); err != nil {
						t.Fatalf("%s\n%s%v", line, out, err)
					}
				}
				if done != nil {
					apitest.Until(t, fmt.Sprint("the effect of ", act), done)
				}
			})
		}
	}
}
