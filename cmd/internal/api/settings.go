package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// settingsObject and settingsPatch are the schemas of settings, from their table.
type settingsObject struct{}

type settingsPatch struct{}

// Schema implements huma.SchemaProvider.
func (settingsObject) Schema(r huma.Registry) *huma.Schema {
	return settingsSchema(r, "Settings", false)
}

// Schema is described there.
func (settingsPatch) Schema(r huma.Registry) *huma.Schema {
	return settingsSchema(r, "SettingsPatch", true)
}

// settingsSchemas makes them the schemas of the types of package settings.
func settingsSchemas(r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[settings.Object](), reflect.TypeFor[settingsObject]())
	r.RegisterTypeAlias(reflect.TypeFor[settings.Patch](), reflect.TypeFor[settingsPatch]())
}

func settingsSchema(r huma.Registry, name string, nullable bool) *huma.Schema {
	all := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: !nullable}
	for _, d := range settings.Describe() {
		s := text(d.About + ": " + d.Bounds + ", default " + d.Default + ".")
		s.Nullable = nullable
		switch d.Kind {
		case settings.Number:
			least, most := float64(d.Least), float64(d.Most)
			s.Type, s.Format, s.Minimum, s.Maximum = huma.TypeInteger, "int32", &least, &most
		case settings.Flag:
			s.Type = huma.TypeBoolean
		}
		if d.Pause != "" {
			d.Name, s = d.Pause, &huma.Schema{Type: huma.TypeObject, Description: "By campaign.", AdditionalProperties: s}
		}
		all.Properties[d.Name] = s
	}
	return define(r, name, all)
}
