package tofu

import (
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// known are the functions of OpenTofu that give the same everywhere, under their names there.
var known = map[string]function.Function{
	"abs": stdlib.AbsoluteFunc, "can": tryfunc.CanFunc, "ceil": stdlib.CeilFunc, "chomp": stdlib.ChompFunc,
	"chunklist": stdlib.ChunklistFunc, "coalesce": coalesce, "coalescelist": stdlib.CoalesceListFunc,
	"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
	"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
	"floor": stdlib.FloorFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
	"join": stdlib.JoinFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc,
	"keys": stdlib.KeysFunc, "length": length, "lookup": lookup, "lower": stdlib.LowerFunc, "max": stdlib.MaxFunc,
	"merge": stdlib.MergeFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "range": stdlib.RangeFunc,
	"regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc, "reverse": stdlib.ReverseListFunc,
	"setproduct": stdlib.SetProductFunc, "setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc,
	"sort": stdlib.SortFunc, "split": stdlib.SplitFunc, "substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc,
	"tobool": stdlib.MakeToFunc(cty.Bool), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
	"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)), "tonumber": stdlib.MakeToFunc(cty.Number),
	"toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)), "tostring": stdlib.MakeToFunc(cty.String),
	"trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc,
	"trimsuffix": stdlib.TrimSuffixFunc, "try": tryfunc.TryFunc, "upper": stdlib.UpperFunc, "values": stdlib.ValuesFunc,
	"zipmap": stdlib.ZipmapFunc,
}

// any takes every value as it is, so that a function decides itself.
func anything(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
		AllowDynamicType: true, AllowMarked: true}
}

// made is a function whose result has the type that it happens to have.
func made(parameters []function.Parameter, rest *function.Parameter,
	give func(arguments []cty.Value) (cty.Value, error)) function.Function {
	return function.New(&function.Spec{
		Params: parameters, VarParam: rest,
		Type: func(arguments []cty.Value) (cty.Type, error) {
			value, err := give(arguments)
			if err != nil {
				return cty.NilType, err
			}

			return value.Type(), nil
		},
		Impl: func(arguments []cty.Value, _ cty.Type) (cty.Value, error) { return give(arguments) },
	})
}

// untold is a function whose result only OpenTofu can tell.
func untold(why string) function.Function {
	rest := anything("arguments")

	return made(nil, &rest, func([]cty.Value) (cty.Value, error) { return unknown(why), nil })
}

// coalesce is the first value that is neither null nor empty.
var coalesce = func() function.Function {
	rest := anything("values")

	return made(nil, &rest, func(values []cty.Value) (cty.Value, error) {
		for _, value := range values {
			plain, _ := value.Unmark()

			switch {
			case !plain.IsKnown():
				return cty.DynamicVal.WithMarks(value.Marks()), nil
			case plain.IsNull(), plain.RawEquals(cty.StringVal("")):
			default:
				return value, nil
			}
		}

		return cty.NilVal, function.NewArgErrorf(0, "no value is there")
	})
}()

// length takes strings and objects too.
var length = made([]function.Parameter{anything("value")}, nil, func(values []cty.Value) (cty.Value, error) {
	switch kind := values[0].Type(); {
	case kind == cty.String:
		return stdlib.StrlenFunc.Call(values)
	case kind.IsObjectType():
		return cty.NumberIntVal(int64(len(kind.AttributeTypes()))), nil
	}

	return stdlib.LengthFunc.Call(values)
})

// lookup can do without a default.
var lookup = func() function.Function {
	byDefault := anything("default")

	return made([]function.Parameter{anything("map"), anything("key")}, &byDefault,
		func(values []cty.Value) (cty.Value, error) {
			if len(values) == 3 {
				return stdlib.LookupFunc.Call(values)
			}

			if kind, key := values[0].Type(), values[1]; kind.IsObjectType() && key.Type() == cty.String && key.IsKnown() {
				key, _ := key.Unmark()
				if !kind.HasAttribute(key.AsString()) {
					return cty.NilVal, function.NewArgErrorf(1, "there is no such key, and no default")
				}

				return values[0].GetAttr(key.AsString()), nil
			}

			return stdlib.IndexFunc.Call(values)
		})
}()
