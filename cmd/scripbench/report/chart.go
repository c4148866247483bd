package report

import (
	"errors"
	"fmt"
	"html"
	"io"
)

// panel is a chart of bars, the first on top. Each is labelled with its number, so that there are no axes.
type panel struct {
	title, unit string
	bars        []bar
}

type bar struct {
	name, color string
	rate        float64
}

const (
	ourColor, peerColor, limitColor = "#1b7f5c", "#9aa5b1", "#d8dde3"

	// Sizes in pixels: a panel's width, the space for names and for numbers beside the bars, the distance of bars, and the
	// space above and below them.
	panelWidth, namesWidth, numbersWidth, barStep, panelHead, panelFoot = 640, 110, 80, 22, 44, 14
)

// Chart draws the rates of tables of closed loops and of growth as one SVG, one panel below the other.
func (r *Report) Chart(w io.Writer) error {
	panels := r.panels()
	if panels == nil {
		return errors.New("there is nothing to plot: no table of a closed loop and no growth")
	}
	text, y := "", 0
	for _, p := range panels {
		most := 1.0
		for _, one := range p.bars {
			most = max(most, one.rate)
		}
		text += fmt.Sprintf(`<text x="%d" y="%d" font-weight="bold">%s</text><text x="%d" y="%d" font-size="10">%s</text>`+"\n",
			namesWidth, y+20, html.EscapeString(p.title), namesWidth, y+35, html.EscapeString(p.unit))
		y += panelHead
		for _, one := range p.bars {
			width := one.rate / most * (panelWidth - namesWidth - numbersWidth)
			text += fmt.Sprintf(`<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				namesWidth-6, y+11, html.EscapeString(one.name), namesWidth, y, width, one.color, namesWidth+width+4, y+11, Thousands(one.rate))
			y += barStep
		}
		y += panelFoot
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#3c444d">
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, panelWidth, y, text)
	return err
}

func (r *Report) panels() (all []panel) {
	for _, t := range r.Tables {
		if t.OpenLoop == "" {
			all = append(all, panel{t.Workload + ", " + string(t.Durability), t.Unit + " a second", Each(t.Systems, func(s System[Measure]) bar {
				color := map[string]string{Subject: ourColor, "limit": limitColor}[s.Name]
				if color == "" {
					color = peerColor
				}
				return bar{s.Name, color, s.Median.Rate}
			})})
		}
	}
	if g := r.Growth; g != nil {
		level := func(l Level) bar { return bar{Num(l.Size), ourColor, l.Rates.Rate} }
		all = append(all,
			panel{"growth, " + string(g.Durability), "claims a second by coupons claimed in one campaign", Each(g.Claimed, level)},
			panel{"growth, " + string(g.Durability), "claims a second by campaigns", Each(g.Campaigns, level)})
	}
	return all
}
