package console_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed-4a2410e3/scrip/cmd/internal/browser"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// person uses the console in a browser.
type person struct {
	t   *testing.T
	ctx context.Context
	url string
}

func (p *person) open(path string) {
	p.t.Helper()
	do(p.t, p.ctx, chromedp.Navigate(p.url+path))
}

// click clicks the link or button with a text, and waits for the page that follows.
func (p *person) click(text string) {
	p.t.Helper()
	before := p.mark()
	sel := fmt.Sprintf(`//main//*[self::a or self::button][normalize-space()=%q]`, text)
	do(p.t, p.ctx, chromedp.Click(sel))
	p.arrives(before, "a click on "+text)
}

// mark leaves a mark in the page that the next page does not have.
func (p *person) mark() string {
	p.t.Helper()
	return eval[string](p.t, p.ctx, `(window.marked = "yes")`)
}

func (p *person) arrives(_, what string) {
	p.t.Helper()
	apitest.Until(p.t, "the page after "+what, func() bool {
		ready, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`document.readyState == "complete" && window.marked === undefined`))
		return err == nil && ready // an error: between two pages
	})
}

// types types values into fields by their names.
func (p *person) types(fields ...string) {
	p.t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		sel := chromedp.CSS(fmt.Sprintf(`main [name=%q]`, fields[i]))
		do(p.t, p.ctx, chromedp.Clear(sel), chromedp.SendKeys(sel, fields[i+1]))
	}
}

// sees waits until the page has a text, without loading it again.
func (p *person) sees(text string) {
	p.t.Helper()
	apitest.Until(p.t, "the page shows "+text, func() bool { return strings.Contains(p.text(), text) })
}

// finds is sees of a page that is loaded again until it has the text, for what the tables have a moment later.
func (p *person) finds(path, text string) {
	p.t.Helper()
	apitest.Until(p.t, path+" shows "+text, func() bool {
		p.open(path)
		return strings.Contains(p.text(), text)
	})
}

func (p *person) text() string {
	p.t.Helper()
	return eval[string](p.t, p.ctx, `document.querySelector("main").innerText`)
}

// TestJourney: an operator logs in by the link, creates a campaign, sees it sell out, helps a customer, sees an expiry and a reminder,
// rebuilds the tables, and reads all of it in the audit. With SCRIP_SHOTS it leaves pictures.
func TestJourney(t *testing.T) {
	r := apitest.Serve(t)
	p := &person{t, browser.Open(t), r.URL}
	shots := func(name string) {
		if dir := os.Getenv("SCRIP_SHOTS"); dir != "" {
			shot(t, p.ctx, dir+"/journey-"+name+".png")
		}
	}
	do(t, p.ctx, chromedp.EmulateViewport(1100, 800))
	p.open(link(t, r))
	p.sees("Overview")

	p.open("/campaigns")
	p.click("Create a campaign")
	p.types("campaign", "midnight", "codes", "300", "expires_at", "+12s")
	p.click("Create a campaign")
	p.sees("Campaign midnight")
	expires := time.Now().Add(12 * time.Second)

	// It sells out while the page is open.
	codes := make([]string, 300)
	for i := range codes {
		codes[i] = r.Claim(t, "midnight", fmt.Sprintf("customer-%d", i))
		if i == 100 {
			p.sees("a second")
		}
	}
	p.sees("sold out")
	shots("sold-out")
	if _, err := r.Shop.Remind(t.Context(), "midnight", "customer-7", "expires", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	r.Redeem(t, codes[1], "A-1001")

	// Support: find a code, void one, roll one back.
	before := p.mark()
	do(t, p.ctx, chromedp.SendKeys(chromedp.CSS(`header input[type=search]`), codes[0]+"\r"))
	p.arrives(before, "the search")
	p.sees("Coupon 1 of midnight")
	p.click("Void")
	p.types("reason", "lost")
	p.click("Void")
	p.sees("voided")
	p.finds("/orders/A-1001", "midnight 2")
	p.click("Roll back")
	p.click("Roll back")
	p.finds("/coupons/midnight/2", "rolled_back")

	// The reminder fires, and the coupons expire.
	p.finds("/campaigns/midnight/reminders", "fired")
	time.Sleep(time.Until(expires)) // until then there is nothing to see
	p.finds("/coupons/midnight/8", "expired")

	p.open("/tables")
	p.click("Rebuild")
	p.click("Rebuild")
	p.sees("rebuild.start")
	p.sees("done")
	shots("rebuild")
	p.finds("/coupons/midnight/1", "lost")

	p.open("/audit")
	for _, done := range []string{"create_campaign", "void", "rollback", "rebuild.start", "console"} {
		p.sees(done)
	}
	shots("audit")
}
