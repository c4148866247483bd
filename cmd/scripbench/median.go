package main

import (
	"reflect"
	"slices"
)

// median takes the median of every number in a struct by itself, also in structs within it. For an even number of runs it
// is the mean of the two in the middle. There must be a run.
func median[T any](runs []T) T {
	var m T
	values := make([]reflect.Value, len(runs))
	for i := range runs {
		values[i] = reflect.ValueOf(&runs[i]).Elem()
	}
	medianOf(reflect.ValueOf(&m).Elem(), values)
	return m
}

func medianOf(into reflect.Value, runs []reflect.Value) {
	switch into.Kind() {
	case reflect.Struct:
		for f := range into.NumField() {
			medianOf(into.Field(f), each(runs, func(v reflect.Value) reflect.Value { return v.Field(f) }))
		}
	case reflect.Pointer:
		if runs[0].IsNil() {
			return
		}
		into.Set(reflect.New(into.Type().Elem()))
		medianOf(into.Elem(), each(runs, reflect.Value.Elem))
	case reflect.Int, reflect.Int64:
		all := each(runs, reflect.Value.Int)
		slices.Sort(all)
		into.SetInt((all[(len(all)-1)/2] + all[len(all)/2]) / 2)
	case reflect.Float64:
		all := each(runs, reflect.Value.Float)
		slices.Sort(all)
		into.SetFloat((all[(len(all)-1)/2] + all[len(all)/2]) / 2)
	}
}

func each[A, B any](list []A, of func(A) B) (all []B) {
	for _, a := range list {
		all = append(all, of(a))
	}
	return all
}
