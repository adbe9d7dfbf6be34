"""Three ways to hold a piece of Σ_u Σ_ts M_ts ⊗ x_t x_sᵀ and to multiply it by GEMMs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

import torch
from torch import Tensor

from .chunks import LayerChunk

_TILE = 2**21
_WORTH_CUTTING = 0.95


class CurvatureBlock(ABC):
    """A symmetric matrix over the weight `(m, n)`, as its action on `(k, m, n)` blocks."""

    @abstractmethod
    def products(self, v: Tensor) -> Tensor:
        """H V for V of shape `(k, m, n)`."""

    @abstractmethod
    def bytes(self) -> int:
        """What it holds."""


class HeldBlock(CurvatureBlock):
    """A form that also knows the rearranged matrix Σ vec(M_ts) vec(x_t x_sᵀ)ᵀ, whose rank-one parts are Kronecker products."""

    @abstractmethod
    def against_inputs(self, b: Tensor) -> Tensor:
        """Σ Σ_ts M_ts (x_tᵀ B x_s) `(m, m)`: the rearranged matrix times vec(B), for one group."""

    @abstractmethod
    def against_outputs(self, a: Tensor) -> Tensor:
        """Σ Σ_ts <M_ts, A> x_t x_sᵀ `(n, n)`: the transpose of the rearranged matrix times vec(A), for one group."""

    @abstractmethod
    def product_flops(self) -> float:
        """Operations per vector."""

    @abstractmethod
    def inner_flops(self, other: HeldBlock) -> float:
        """Operations of `inner`; infinite where it is not offered."""

    @abstractmethod
    def inner(self, other: HeldBlock) -> float:
        """<H, H'> of two pieces' matrices, from Gram matrices of their parts."""


def block_of(piece: LayerChunk, m: int) -> HeldBlock:
    """The form with the fewest operations per product."""
    if piece.columns is None:
        return DenseBlock(piece)
    positions = piece.x.shape[1]
    return GradientBlock(piece, m) if len(piece.columns) < positions else FactorBlock(piece)


class GradientBlock(HeldBlock):
    """Rows g = Σ_p N_p ⊗ x_p, one per unit and column: H = Σ g gᵀ. Best where there are more positions than columns."""

    def __init__(self, piece: LayerChunk, m: int) -> None:
        assert piece.columns is not None
        groups = piece.x.shape[2]
        n = piece.columns.view(*piece.columns.shape[:3], groups, m // groups)
        self.g = torch.einsum("supgo,upgn->sugon", n, piece.x).flatten(0, 1).reshape(-1, m, piece.x.shape[3])

    def products(self, v: Tensor) -> Tensor:
        g = self.g.flatten(1)
        return ((v.flatten(1) @ g.T) @ g).view(v.shape)

    def bytes(self) -> int:
        return self.g.nbytes

    def against_inputs(self, b: Tensor) -> Tensor:
        return torch.einsum("rmn,rkn->mk", self.g @ b, self.g)

    def against_outputs(self, a: Tensor) -> Tensor:
        return torch.einsum("rmn,rmk->nk", a @ self.g, self.g)

    def product_flops(self) -> float:
        return 4.0 * self.g.numel()

    def inner_flops(self, other: HeldBlock) -> float:
        return 2.0 * self.g.numel() * len(other.g) if isinstance(other, GradientBlock) else inf

    def inner(self, other: HeldBlock) -> float:
        assert isinstance(other, GradientBlock)
        return float((self.g.flatten(1) @ other.g.flatten(1).T).double().square().sum())


class PositionBlock(CurvatureBlock):
    """Shared by the forms that keep inputs and output Hessians apart: y = V x, then M y, then outer products with x."""

    def __init__(self, x: Tensor) -> None:
        self.single = x.shape[1] == x.shape[2] == 1  # one position, one group
        self.live: Tensor | None = None
        self.held = x
        if x.shape[2] == 1:
            live = x.flatten(0, -2).ne(0).any(0)
            # An image's border, a dead unit: rows and columns of zeros.
            if int(live.sum()) < _WORTH_CUTTING * x.shape[3]:
                self.live = live.nonzero().squeeze(1)
                self.held = x[..., self.live].contiguous()
        self.inputs = x.shape[3]

    @property
    def x(self) -> Tensor:
        """The inputs `(U, P, groups, n)`."""
        if self.live is None:
            return self.held
        whole = self.held.new_zeros(*self.held.shape[:3], self.inputs)
        whole[..., self.live] = self.held
        return whole

    def input_flops(self, m: int) -> float:
        return 4.0 * m * self.held.numel() / self.held.shape[2]

    def products(self, v: Tensor) -> Tensor:
        if self.live is None:
            return self._products(v)
        out = torch.zeros_like(v)
        if len(self.live):  # a layer behind dead units may be given nothing but zeros
            out[..., self.live] = self._products(v[..., self.live])
        return out

    def _products(self, v: Tensor) -> Tensor:
        k, m, n = v.shape
        units, positions, groups, _ = self.held.shape
        if groups == 1:
            x = self.held.reshape(-1, n)
            y = (x @ v.reshape(-1, n).T).view(units, positions, k, m)
            return (self.curve(y).reshape(-1, k * m).T @ x).view(k, m, n)
        y = torch.einsum("upgn,kgon->upkgo", self.held, v.reshape(k, groups, -1, n))
        curved = self.curve(y.flatten(3)).reshape(y.shape)
        return torch.einsum("upkgo,upgn->kgon", curved, self.held).reshape(v.shape)

    @abstractmethod
    def curve(self, y: Tensor) -> Tensor:
        """M_u y_u for y of shape `(U, P, k, m)`."""

    def input_gram(self, b: Tensor) -> Tensor:
        """x_tᵀ B x_s, `(U, P, P)`."""
        x = self.x.squeeze(2)
        return (x @ b) @ x.mT


class FactorBlock(PositionBlock, HeldBlock):
    """M_u = Σ_s N_s N_sᵀ with few columns: a product costs 4 P m n + 4 S P m operations per unit."""

    def __init__(self, piece: LayerChunk) -> None:
        super().__init__(piece.x)
        assert piece.columns is not None
        self.n = piece.columns.movedim(0, 1).contiguous()  # (U, S, P, m)

    def curve(self, y: Tensor) -> Tensor:
        units, positions, k, m = y.shape
        by_unit = y.transpose(1, 2).reshape(units, k, positions * m)
        out = torch.empty_like(by_unit)
        each = self.n[:1].nbytes
        # Both products read N: in small tiles the second one finds it in the cache, which halves the time.
        rows = max(1, _TILE // max(1, each)) if self.n.device.type == "cpu" else max(1, units)
        for here, n, there in zip(*(torch.split(t, rows) for t in (by_unit, self.n.flatten(2), out)), strict=True):
            torch.bmm(here @ n.mT, n, out=there)
        return out.view(units, k, positions, m).transpose(1, 2)

    def bytes(self) -> int:
        return self.n.nbytes + self.held.nbytes

    def against_inputs(self, b: Tensor) -> Tensor:
        gram = self.input_gram(b)
        left = torch.einsum("ustm,utp->uspm", self.n, gram)
        return left.reshape(-1, self.n.shape[-1]).T @ self.n.reshape(-1, self.n.shape[-1])

    def against_outputs(self, a: Tensor) -> Tensor:
        x = self.x.squeeze(2)
        inner = torch.einsum("ustm,uspm->utp", self.n @ a, self.n)
        return (inner @ x).reshape(-1, x.shape[-1]).T @ x.reshape(-1, x.shape[-1])

    def product_flops(self) -> float:
        return self.input_flops(self.n.shape[-1]) + 4.0 * self.n.numel()

    def inner_flops(self, other: HeldBlock) -> float:
        if not isinstance(other, FactorBlock) or not self.single or not other.single:
            return inf
        return 2.0 * len(other.n) * (self.n.numel() * other.n.shape[1] + self.held.numel())

    def inner(self, other: HeldBlock) -> float:
        assert isinstance(other, FactorBlock)
        (u, s), (w, t), m = self.n.shape[:2], other.n.shape[:2], self.n.shape[-1]
        total = 0.0
        rows = max(1, int(1e6 / max(1, s * w * t)))  # small tiles of the Gram matrix stay in the cache
        theirs, x, own = other.n.reshape(-1, m), other.x.reshape(w, -1), self.x
        for start in range(0, u, rows):
            mine = self.n[start : start + rows].reshape(-1, m)
            tile = (mine @ theirs.T).square_().view(-1, s, w, t).sum((1, 3))
            inputs = own[start : start + rows].reshape(-1, x.shape[-1]) @ x.T
            total += float((tile * inputs.square_()).double().sum())
        return total


class DenseBlock(PositionBlock, HeldBlock):
    """M_u held as a `(Pm, Pm)` matrix, for second derivatives."""

    def __init__(self, piece: LayerChunk) -> None:
        super().__init__(piece.x)
        assert piece.dense is not None
        self.matrix = piece.dense

    def curve(self, y: Tensor) -> Tensor:
        units, positions, k, m = y.shape
        by_unit = y.transpose(1, 2).reshape(units, k, positions * m)
        return (by_unit @ self.matrix).view(units, k, positions, m).transpose(1, 2)

    def bytes(self) -> int:
        return self.matrix.nbytes + self.held.nbytes

    def _blocks(self) -> Tensor:
        positions = self.held.shape[1]
        m = self.matrix.shape[-1] // positions
        return self.matrix.view(len(self.held), positions, m, positions, m)

    def against_inputs(self, b: Tensor) -> Tensor:
        return torch.einsum("utmpk,utp->mk", self._blocks(), self.input_gram(b))

    def against_outputs(self, a: Tensor) -> Tensor:
        x = self.x.squeeze(2)
        inner = torch.einsum("utmpk,mk->utp", self._blocks(), a)
        return (inner @ x).reshape(-1, x.shape[-1]).T @ x.reshape(-1, x.shape[-1])

    def product_flops(self) -> float:
        return self.input_flops(self.matrix.shape[-1] // self.held.shape[1]) + 2.0 * self.matrix.numel()

    def inner_flops(self, other: HeldBlock) -> float:
        if not isinstance(other, DenseBlock) or not self.single or not other.single:
            return inf
        return 2.0 * len(other.matrix) * (self.matrix.numel() + self.held.numel())

    def inner(self, other: HeldBlock) -> float:
        assert isinstance(other, DenseBlock)
        curves = self.matrix.flatten(1) @ other.matrix.flatten(1).T
        inputs = self.x.flatten(1) @ other.x.flatten(1).T
        return float((curves * inputs.square_()).double().sum())
