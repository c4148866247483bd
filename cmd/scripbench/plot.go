package main

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	panelWidth = 11 * vg.Centimeter
	barHeight  = 12 * vg.Length(1)
	panelExtra = 2.2 * vg.Centimeter
	plotMargin = 8 * vg.Length(1)
)

var (
	ourColor   = color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 0xff}
	peerColor  = color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}
	limitColor = color.RGBA{R: 0xd8, G: 0xdd, B: 0xe3, A: 0xff}
	ink        = color.RGBA{R: 0x3c, G: 0x44, B: 0x4d, A: 0xff}
)

// plotReport draws what a report has as one SVG: a row of panels for each workload, one for each durability, and a row
// for growth.
func plotReport(w io.Writer, r Report) error {
	var rows [][]*plot.Plot
	most := 0
	for _, name := range tableNames(r.Tables) {
		var row []*plot.Plot
		for _, d := range []durability{always, interval} {
			for _, t := range r.Tables {
				if t.Workload == name && t.Durability == d && t.OpenLoop == "" {
					p, err := bars(t)
					if err != nil {
						return err
					}
					row = append(row, p)
					most = max(most, len(t.Systems))
				}
			}
		}
		if row != nil {
			rows = append(rows, row)
		}
	}
	if r.Growth != nil {
		row, err := curves(*r.Growth)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if rows == nil {
		return errors.New("there is nothing to plot: no table of a closed loop and no growth")
	}
	return tile(w, rows, vg.Length(max(most, 5))*barHeight*1.5+panelExtra)
}

func tableNames(tables []Table) (names []string) {
	for _, t := range tables {
		if !slices.Contains(names, t.Workload) {
			names = append(names, t.Workload)
		}
	}
	return names
}

// tile draws panels in rows and columns; where a row is shorter its last place stays empty.
func tile(w io.Writer, rows [][]*plot.Plot, height vg.Length) error {
	columns := 0
	for _, row := range rows {
		columns = max(columns, len(row))
	}
	canvas := vgsvg.New(panelWidth*vg.Length(columns), height*vg.Length(len(rows)))
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	tiles := draw.Tiles{Rows: len(rows), Cols: columns, PadX: plotMargin, PadY: plotMargin, PadTop: plotMargin, PadBottom: plotMargin, PadLeft: plotMargin, PadRight: plotMargin}
	for y, row := range rows {
		for x, p := range row {
			p.Draw(tiles.At(dc, x, y))
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

// panel is an empty plot in our style.
func panel(title string) *plot.Plot {
	p := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Y.Label.TextStyle} {
		style.Font, style.Color = sans, ink
	}
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 10
	p.Title.TextStyle.Font.Weight = 2 // bold
	p.Title.Padding = 4
	p.X.Tick.Label.Font.Size, p.X.Label.TextStyle.Font.Size = 8, 8
	p.X.Tick.Marker = shortTicks{}
	p.BackgroundColor = color.White
	return p
}

// bars shows the rate of each system, the first on top.
func bars(t Table) (*plot.Plot, error) {
	p := panel(fmt.Sprintf("%s, %s", t.Workload, t.Durability))
	p.X.Label.Text = t.Unit + " a second"
	names := make([]string, len(t.Systems))
	labels := plotter.XYLabels{XYs: make(plotter.XYs, len(t.Systems)), Labels: make([]string, len(t.Systems))}
	widest := 0.0
	for i, s := range t.Systems {
		at := len(t.Systems) - 1 - i
		bar, err := plotter.NewBarChart(plotter.Values{s.Median.Rate}, barHeight)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(at), 0
		switch s.Name {
		case subject:
			bar.Color = ourColor
		case "limit":
			bar.Color = limitColor
		default:
			bar.Color = peerColor
		}
		p.Add(bar)
		names[at] = s.Name
		labels.XYs[at] = plotter.XY{X: s.Median.Rate, Y: float64(at)}
		labels.Labels[at] = thousands(s.Median.Rate)
		widest = max(widest, s.Median.Rate)
	}
	numbers, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range numbers.TextStyle {
		numbers.TextStyle[i] = p.X.Tick.Label
		numbers.TextStyle[i].XAlign, numbers.TextStyle[i].YAlign = text.XLeft, text.YCenter
	}
	numbers.Offset = vg.Point{X: 3}
	p.Add(numbers)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, widest*1.15+1 // room for the number of the longest bar
	return p, nil
}

// curves shows claims a second against coupons claimed and against campaigns.
func curves(g Growth) (row []*plot.Plot, err error) {
	for _, part := range []struct {
		title, x string
		levels   []Level
	}{
		{"growth, " + string(g.Durability), "coupons claimed in one campaign", g.Claimed},
		{"growth, " + string(g.Durability), "campaigns", g.Campaigns},
	} {
		if len(part.levels) == 0 {
			continue
		}
		p := panel(part.title)
		p.X.Label.Text, p.Y.Label.Text = part.x, "claims a second"
		p.Y.Tick.Marker = shortTicks{}
		var at plotter.XYs
		most := 0.0
		for _, l := range part.levels {
			at = append(at, plotter.XY{X: float64(l.Size), Y: l.Rates.Rate})
			most = max(most, l.Rates.Rate)
		}
		line, points, err := plotter.NewLinePoints(at)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color = ourColor, ourColor
		line.Width, points.Shape, points.Radius = 2, draw.CircleGlyph{}, 3
		p.Add(line, points)
		if len(at) > 1 {
			p.X.Scale = plot.LogScale{}
			p.X.Tick.Marker = powers{}
		}
		p.Y.Min, p.Y.Max = 0, most*1.15+1
		row = append(row, p)
	}
	return row, nil
}

// shortTicks writes 300k and 1.2M.
type shortTicks struct{}

func (shortTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

// powers of ten.
type powers struct{}

func (powers) Ticks(least, most float64) (ticks []plot.Tick) {
	for v := 1.0; v <= most*1.001; v *= 10 {
		if v >= least*0.999 {
			ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
		}
	}
	return ticks
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", v)
}

func drawFile(path string, r Report) error {
	return atomicfile.WriteFunc(path, 0o644, func(w *os.File) error { return plotReport(w, r) })
}
