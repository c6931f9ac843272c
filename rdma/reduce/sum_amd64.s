#include "textflag.h"

// func sumTwoFloat32(out, a, b *float32, n int)
TEXT ·sumTwoFloat32(SB), NOSPLIT, $0-32
	MOVQ out+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX

two:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS (DX), X2
	MOVUPS 16(DX), X3
	ADDPS  X2, X0
	ADDPS  X3, X1
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	ADDQ   $32, SI
	ADDQ   $32, DX
	ADDQ   $32, DI
	SUBQ   $8, CX
	JNZ    two
	RET

// func sumFourFloat32(out, a, b, c, d *float32, n int)
TEXT ·sumFourFloat32(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ c+24(FP), R8
	MOVQ d+32(FP), R9
	MOVQ n+40(FP), CX

four:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS (DX), X2
	MOVUPS 16(DX), X3
	MOVUPS (R8), X4
	MOVUPS 16(R8), X5
	MOVUPS (R9), X6
	MOVUPS 16(R9), X7
	ADDPS  X2, X0
	ADDPS  X3, X1
	ADDPS  X4, X0
	ADDPS  X5, X1
	ADDPS  X6, X0
	ADDPS  X7, X1
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	ADDQ   $32, SI
	ADDQ   $32, DX
	ADDQ   $32, R8
	ADDQ   $32, R9
	ADDQ   $32, DI
	SUBQ   $8, CX
	JNZ    four
	RET
