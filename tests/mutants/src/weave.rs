//! Writes many changes into one source file, each behind a switch that is looked at when the program runs.
//!
//! `a + b` becomes `match (a, b) { (l, r) => match crate::mutant::at(7, 8) { 7 => l - r, 8 => l * r, _ => l + r } }`: the
//! switch says which of the changes 7 and 8 is on, if one of them is.

use std::collections::{BTreeSet, HashMap};

use proc_macro2::{LineColumn, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Block, Expr, Signature};

use crate::list::{Genre, Mutant};

/// What has been written into a file.
#[derive(Default)]
pub(crate) struct Woven {
    /// The numbers of the changes.
    pub(crate) numbers: BTreeSet<usize>,
    /// Those in functions that the compiler may work out beforehand: then they are without change.
    pub(crate) constant: BTreeSet<usize>,
}

/// The file with all changes of `mutants` that could be written into it.
pub(crate) fn weave(source: &str, mutants: &[&Mutant]) -> Result<(String, Woven), syn::Error> {
    let mut file = syn::parse_file(source)?;
    let mut wanted: HashMap<(Genre, usize, usize), Vec<&Mutant>> = HashMap::new();
    for mutant in mutants {
        wanted.entry((mutant.genre, mutant.start.0, mutant.start.1)).or_default().push(mutant);
    }
    let mut weaver = Weaver { wanted, woven: Woven::default(), in_constant: false };
    weaver.visit_file_mut(&mut file);
    Ok((file.to_token_stream().to_string(), weaver.woven))
}

struct Weaver<'a> {
    wanted: HashMap<(Genre, usize, usize), Vec<&'a Mutant>>,
    woven: Woven,
    in_constant: bool,
}

impl<'a> Weaver<'a> {
    fn note(&mut self, mutant: &Mutant) {
        self.woven.numbers.insert(mutant.number);
        if self.in_constant {
            self.woven.constant.insert(mutant.number);
        }
    }

    fn take(&mut self, genre: Genre, at: LineColumn) -> Vec<&'a Mutant> {
        self.wanted.remove(&(genre, at.line, at.column + 1)).unwrap_or_default()
    }

    /// `match` over the numbers of the mutants, with what each does and what happens otherwise.
    fn switch(&mut self, mutants: &[&Mutant], ways: &[TokenStream], otherwise: &TokenStream) -> TokenStream {
        let arms = mutants.iter().zip(ways).map(|(mutant, way)| {
            self.note(mutant);
            let number = mutant.number;
            quote!(#number => #way,)
        });
        let numbers = mutants.iter().map(|mutant| mutant.number);
        let (first, last) = (numbers.clone().min(), numbers.max());
        quote!(match crate::mutant::at(#first, #last) { #(#arms)* _ => #otherwise })
    }

    /// The changes to what a function returns, before everything that it does.
    fn function(&mut self, signature: &Signature, block: &mut Block) {
        let Some(first) = block.stmts.first().map(|statement| statement.span().start()) else { return };
        let outside = std::mem::replace(&mut self.in_constant, signature.constness.is_some());
        let mutants = self.take(Genre::FnValue, first);
        visit_mut::visit_block_mut(self, block);
        for mutant in mutants.into_iter().rev() {
            let Ok(value) = syn::parse_str::<Expr>(&mutant.replacement) else { continue };
            let number = mutant.number;
            block.stmts.insert(0, syn::parse_quote!(if crate::mutant::is(#number) { return #value; }));
            self.note(mutant);
        }
        self.in_constant = outside;
    }

    fn binary(&mut self, left: &Expr, op: &BinOp, right: &Expr, mutants: &[&Mutant]) -> Option<TokenStream> {
        if matches!(left, Expr::Let(_)) || matches!(right, Expr::Let(_)) {
            return None;
        }
        let mut ops = Vec::new();
        for mutant in mutants {
            ops.push(syn::parse_str::<BinOp>(&mutant.replacement).ok()?);
        }
        let ways = |left: TokenStream, right: TokenStream| {
            (ops.iter().map(|op| quote!(#left #op #right)).collect::<Vec<_>>(), quote!(#left #op #right))
        };
        Some(match op {
            BinOp::And(_) | BinOp::Or(_) => {
                let (ways, otherwise) = ways(quote!(l), quote!((#right)));
                let switch = self.switch(mutants, &ways, &otherwise);
                quote!(({ let l: bool = #left; #switch }))
            }
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => {
                let (ways, otherwise) = ways(quote!(*l), quote!(*r));
                let switch = self.switch(mutants, &ways, &otherwise);
                quote!((match (&(#left), &(#right)) { (l, r) => #switch }))
            }
            _ if is_assignment(op) => {
                let (ways, otherwise) = ways(quote!(#left), quote!((#right)));
                let switch = self.switch(mutants, &ways, &otherwise);
                quote!((#switch))
            }
            _ => {
                let (ways, otherwise) = ways(quote!(l), quote!(r));
                let switch = self.switch(mutants, &ways, &otherwise);
                quote!((match (#left, #right) { (l, r) => #switch }))
            }
        })
    }
}

fn is_assignment(op: &BinOp) -> bool {
    op.to_token_stream().to_string().ends_with('=')
}

impl VisitMut for Weaver<'_> {
    // What is worked out by the compiler cannot look at a switch.
    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut syn::TraitItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
    fn visit_expr_repeat_mut(&mut self, array: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut array.expr);
    }
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}

    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.function(&item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.function(&item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let gone = self.take(Genre::MatchArm, arm.span().start());
        let guards = match &arm.guard {
            Some((_, guard)) => self.take(Genre::MatchArmGuard, guard.span().start()),
            None => Vec::new(),
        };
        visit_mut::visit_arm_mut(self, arm);
        for mutant in guards {
            let Some((_, guard)) = &mut arm.guard else { continue };
            if matches!(**guard, Expr::Let(_)) {
                continue;
            }
            let number = mutant.number;
            **guard = match mutant.replacement.as_str() {
                "true" => syn::parse_quote!(crate::mutant::is(#number) || (#guard)),
                _ => syn::parse_quote!(!crate::mutant::is(#number) && (#guard)),
            };
            self.note(mutant);
        }
        for mutant in gone {
            let number = mutant.number;
            let guard: Expr = match &arm.guard {
                Some((_, guard)) => syn::parse_quote!(!crate::mutant::is(#number) && (#guard)),
                None => syn::parse_quote!(!crate::mutant::is(#number)),
            };
            arm.guard = Some((Default::default(), Box::new(guard)));
            self.note(mutant);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Binary(binary) => {
                let mutants = self.take(Genre::BinaryOperator, binary.op.span().start());
                visit_mut::visit_expr_binary_mut(self, binary);
                if let Some(new) = (!mutants.is_empty())
                    .then(|| self.binary(&binary.left, &binary.op, &binary.right, &mutants))
                    .flatten()
                {
                    *expr = Expr::Verbatim(new);
                }
            }
            Expr::Unary(unary) => {
                let mutants = self.take(Genre::UnaryOperator, unary.op.span().start());
                visit_mut::visit_expr_unary_mut(self, unary);
                if let [mutant] = mutants[..] {
                    let (op, operand) = (&unary.op, &unary.expr);
                    let switch = self.switch(&[mutant], &[quote!(v)], &quote!(#op v));
                    *expr = Expr::Verbatim(quote!((match #operand { v => #switch })));
                }
            }
            Expr::Struct(structure) => {
                let fields: Vec<_> = structure
                    .fields
                    .iter()
                    .map(|f| f.span().start())
                    .map(|at| self.take(Genre::StructField, at))
                    .collect();
                visit_mut::visit_expr_struct_mut(self, structure);
                let Some(rest) = structure.rest.clone() else { return };
                if fields.iter().all(Vec::is_empty) {
                    return;
                }
                structure.rest = Some(syn::parse_quote!(rest));
                for (field, mutants) in structure.fields.iter_mut().zip(fields) {
                    for mutant in mutants {
                        let (name, value) = (&field.member, &field.expr);
                        let switch = self.switch(&[mutant], &[quote!(rest.#name)], &quote!(#value));
                        field.colon_token = Some(Default::default());
                        field.expr = Expr::Verbatim(switch);
                    }
                }
                *expr = Expr::Verbatim(quote!(({ let rest = #rest; #structure })));
            }
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }
}
